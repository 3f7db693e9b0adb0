#!/usr/bin/env bash
# Tries an audit over ssh on this one machine: two workers of an sshd of its own audit the shipped checkpoints against
# their record, then a second audit is told to stop in the middle.
#
#   sudo apt-get install --no-install-recommends openssh-server openssh-client
#   PATH=$PWD/.venv/bin:$PATH examples/recipes/try_ssh.sh
#
# It needs a `python` with pytest-fadiag on PATH. Keys and configuration are in a folder of their own, the daemon listens on
# the loopback address alone, lets in only you, and ends with the script.
set -euo pipefail
fixtures=$(cd "$(dirname "$0")/../../fixtures" && pwd)
here=$(mktemp -d)
port=${PORT:-16822}
PATH=$PATH:/usr/sbin:/sbin

stop() {
  if [[ -s $here/sshd.pid ]]; then kill "$(<"$here/sshd.pid")" 2>/dev/null || true; fi
  rm -rf "$here"
}
trap stop EXIT

start_sshd() {
  ssh-keygen -q -t ed25519 -N '' -f "$here/host"
  ssh-keygen -q -t ed25519 -N '' -f "$here/mine"
  cp "$here/mine.pub" "$here/authorized"
  cat >"$here/sshd_config" <<CONF
ListenAddress 127.0.0.1:$port
HostKey $here/host
PidFile $here/sshd.pid
AuthorizedKeysFile $here/authorized
AllowUsers $(id -un)
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AcceptEnv AUDIT_TRIED_IN
StrictModes no
CONF
  cat >"$here/ssh_config" <<CONF
Host audit
  HostName 127.0.0.1
  Port $port
  User $(id -un)
  IdentityFile $here/mine
  IdentitiesOnly yes
  UserKnownHostsFile $here/known
  StrictHostKeyChecking accept-new
  SetEnv AUDIT_TRIED_IN=$here
CONF
  if [[ $(id -u) == 0 ]]; then mkdir -p /run/sshd; fi # sshd of Debian wants it
  "$(command -v sshd)" -f "$here/sshd_config" -E "$here/sshd.log"
  until [[ -s $here/sshd.pid ]]; do sleep 0.1; done
  ssh -F "$here/ssh_config" audit true
  echo "listening: $(ss -Hltn "sport = :$port" | awk '{print $4}')"
}

on_the_other_side() { # how many processes were started through this sshd and still run
  cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -cF "AUDIT_TRIED_IN=$here" || true
}

start_sshd
mkdir "$here/scratch" # xdist copies pytest itself to where workers start: not into the repo
cd "$fixtures"
worker="ssh=audit//ssh_config=$here/ssh_config//python=$(command -v python)//chdir=$here/scratch"
audit=(python -m pytest -d --tx "2*$worker" --rootdir="$fixtures" --config-file="$fixtures/pytest.ini" -o cache_dir="$here/cache")

echo "== 21 checkpoints on two workers over ssh, against their record"
"${audit[@]}" --fa-report=json:"$here/audit.json" --fa-report=html:"$here/audit.html" && code=0 || code=$?
echo "exit code $code"

echo "== told to stop in the middle"
"${audit[@]}" -v --fa-no-cache --fa-report=json:"$here/stopped.json" >"$here/stopped.txt" 2>&1 &
run=$!
until grep -q PASSED "$here/stopped.txt" || ! kill -0 $run 2>/dev/null; do sleep 0.2; done
echo "workers on the other side: $(on_the_other_side)"
kill -TERM $run
wait $run && code=0 || code=$?
echo "exit code $code"
grep -m 1 '^interrupted: ' "$here/stopped.txt"
python -c "import json, sys; print('interrupted:', json.load(open(sys.argv[1]))['interrupted'])" "$here/stopped.json"
for _ in $(seq 100); do
  left=$(on_the_other_side)
  [[ $left != 0 ]] || break
  sleep 0.2
done
echo "workers left on the other side: $left"
[[ $left == 0 ]]
