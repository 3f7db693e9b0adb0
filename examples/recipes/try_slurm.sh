#!/usr/bin/env bash
# Tries both ways to audit with Slurm on a Slurm of this one machine that pretends to have two nodes:
# - fadiag audit --slurm, of which a node dies in the middle;
# - slurm_array.sh, as it is: an array of three tasks audits the shipped checkpoints, one of them is cancelled and run again, and
#   a last job puts the three parts together as one audit.
#
#   sudo apt-get install --no-install-recommends slurm-wlm munge
#   PATH=$PWD/.venv/bin:$PATH examples/recipes/try_slurm.sh
#
# It needs a `python` with pytest-fadiag[slurm] on PATH. The daemons are its own: configuration, keys and state are in a folder of
# their own, they listen on the loopback address alone, and they end with the script.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
recipe=$repo/examples/recipes/slurm_array.sh
here=$(mktemp -d)
PATH=$PATH:/usr/sbin:/sbin
export SLURM_CONF=$here/slurm.conf
fixtures=$repo/fixtures

stop() {
  if [[ -s $here/slurmctld.pid ]]; then scancel --user="$(id -un)" && sleep 2 || true; fi
  for daemon in slurmd-n1 slurmd-n2 slurmctld munged; do
    if [[ -s $here/$daemon.pid ]]; then kill "$(<"$here/$daemon.pid")" 2>/dev/null || true; fi
  done
  sleep 2
  if [[ -z ${KEEP:-} ]]; then rm -rf "$here"; else echo "kept: $here"; fi
}
trap stop EXIT

until_true() { # SECONDS COMMAND…: waits until the command succeeds
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { echo "gave up waiting for: $*" >&2; tail -n 20 "$here"/*.log >&2; exit 1; }
    sleep 0.2
  done
}

start_slurm() {
  mkdir -p "$here"/{state,spool-n1,spool-n2,bin}
  head -c 128 /dev/urandom >"$here/munge.key"
  chmod 400 "$here/munge.key"
  chmod 755 "$here"
  munged --socket="$here/munge.socket" --key-file="$here/munge.key" --pid-file="$here/munged.pid" \
    --log-file="$here/munged.log" --seed-file="$here/munge.seed" --force
  cat >"$SLURM_CONF" <<CONF
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=${PORT:-16817}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$here/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool-%n
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd-%n.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=10
MinJobAge=3600
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((${PORT:-16817} + 1)) CPUs=$(nproc) State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((${PORT:-16817} + 2)) CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
CONF
  slurmctld
  slurmd -N n1
  slurmd -N n2
  until_true 60 bash -c '[[ $(sinfo --Node --noheader --states=idle | wc -l) == 2 ]]'
  # submitit asks sacct, which wants a database. Here squeue answers, which remembers the jobs of the last hour.
  cat >"$here/bin/sacct" <<'SACCT'
#!/bin/sh
echo 'JobID|State|NodeList'
squeue --noheader --states=all --array --format='%i|%T|%N'
SACCT
  chmod +x "$here/bin/sacct"
}

dies() { # NODE: its daemon and all that it runs, without a word to the controller
  local processes=() process
  for process in /proc/[0-9]*; do
    if grep -qzx "SLURMD_NODENAME=$1" "$process/environ" 2>/dev/null; then
      processes+=("$(awk '/^PPid/ { print $2 }' "$process/status")" "${process#/proc/}")
    fi
  done
  kill -KILL "$(<"$here/slurmd-$1.pid")" "${processes[@]}" 2>/dev/null || true
  rm "$here/slurmd-$1.pid"
}

finished() { [[ -z $(squeue --noheader --jobs="$1" 2>/dev/null) ]]; }
judged() { grep -qE 'PASSED|XFAIL' "$1"; }
state() { scontrol show job "$1" | grep -oE 'JobState=[A-Z]+|ExitCode=[0-9:]+' | paste -sd' '; }

start_slurm
echo "listening: $(ss -Hltn "( sport = :${PORT:-16817} or sport = :$((${PORT:-16817} + 1)) or sport = :$((${PORT:-16817} + 2)) )" | awk '{print $4}' | paste -sd' ')"
cd "$here"

echo "== fadiag audit --slurm, and a node that dies in the middle"
PATH=$here/bin:$PATH python -m pytest_fadiag audit "$fixtures/checkpoints" --rootdir "$fixtures" -o cache_dir="$here/cache" \
  --data "fashion-mnist:$fixtures/fashion-mnist" --frozen "$fixtures/checkpoints/frozen_*.pt" --diagnostics abcdeg --expect "$fixtures/expected.json" \
  --slurm partition=all,parts=3,cpus-per-task=$(nproc) >slurm.txt 2>&1 &
audit=$!
until_true 600 bash -c 'squeue --noheader --states=running --nodelist=n2 | grep -q .'
until_true 600 bash -c 'grep -l PASSED fadiag-slurm/*/*.out || ls cache/d/fadiag/*.json'
dies n2
code=0
wait "$audit" || code=$?
cat slurm.txt
echo "exit code: $code"
grep -q 'slurm: lost ' slurm.txt && [[ $code == 0 ]]
slurmd -N n2
until_true 60 bash -c '[[ $(sinfo --Node --noheader --states=idle | wc -l) == 2 ]]'

export OPTIONS="-v -n 2 --rootdir='$fixtures' --fa-only --fa-checkpoint='$fixtures/checkpoints' --fa-frozen='$fixtures/checkpoints/frozen_*.pt' \
  --fa-data='fashion-mnist:$fixtures/fashion-mnist' --fa-diagnostics=abcdeg --fa-expect='$fixtures/expected.json' \
  --fa-report=html:audit-parts/part-\$SLURM_ARRAY_TASK_ID.html"

echo "== the array, and a task that is cancelled in the middle"
audit=$(sbatch --parsable --array=1-3 --output=task-%a.txt "$recipe")
until_true 600 judged task-2.txt
scancel "${audit}_2"
until_true 3600 finished "$audit"
for task in 1 2 3; do echo "task $task: $(state "${audit}_$task")"; done
grep -m 1 '^interrupted: ' task-2.txt
python - audit-parts/part-2 <<'SAID'
import collections, json, pathlib, sys
part, page = (pathlib.Path(sys.argv[1] + suffix) for suffix in (".json", ".html"))
audit = json.loads(part.read_text("utf-8"))
outcomes = collections.Counter(outcome for row in audit["rows"] for outcome in row["outcomes"].values())
assert audit["interrupted"] and "interrupted: " in page.read_text("utf-8"), "not marked as interrupted"
assert page.read_text("utf-8").rstrip().endswith("</html>"), "a torn page"
print("part 2 is whole and marked as interrupted:", dict(outcomes))
SAID
echo "left running: $(pgrep -fc -- "--fa-shard=2/3" || true)"

echo "== what was interrupted gives no verdict"
whole=$(sbatch --parsable --output=early.txt "$recipe" whole --expect "$fixtures/expected.json")
until_true 600 finished "$whole"
echo "whole: $(state "$whole")"
tail -n 2 early.txt

echo "== the task again, then the whole"
again=$(sbatch --parsable --array=1-3 --hold --output=again-%a.txt "$recipe")
scancel "${again}_1" "${again}_3"
scontrol release "$again"
whole=$(sbatch --parsable --dependency="afterany:$again" --output=whole.txt "$recipe" whole --expect "$fixtures/expected.json")
until_true 3600 finished "$whole"
echo "task 2: $(state "${again}_2")"
echo "whole: $(state "$whole")"
cat whole.txt
[[ $(state "$whole") == "JobState=COMPLETED ExitCode=0:0" ]]
