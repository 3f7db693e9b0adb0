#!/usr/bin/env bash
# An audit as a Slurm job array: each task audits one part on its own GPU; a last job puts the parts together.
#
#   export OPTIONS="--fa-checkpoint='runs/*_s*.pt' --fa-data=cifar10:data --fa-frozen='runs/frozen_*.pt'"
#   audit=$(sbatch --parsable --array=1-8 --gres=gpu:1 examples/recipes/slurm_array.sh)
#   sbatch --dependency=afterany:$audit examples/recipes/slurm_array.sh whole [--expect expected.json]
#
# OPTIONS is what you would type after pytest on one machine, with its quotes; ini settings need not be repeated.
# On a disk that all tasks share there is a simpler way: let them share a cache (leave -o cache_dir out), and run
# the whole audit once more at the end. Nothing is measured again.
#SBATCH --job-name=fa-audit
#SBATCH --time=00:30:00
set -euo pipefail
parts=$(realpath -m "${PARTS:-audit-parts}") # pytest takes a relative cache_dir from its rootdir

if [[ ${1:-} == whole ]]; then
  # A missing part, because its task died before it could write, is an error.
  exec python -m pytest_fadiag show "$parts"/part-*.json --report json:audit.json --report html:audit.html "${@:2}"
fi

task=${SLURM_ARRAY_TASK_ID:?run this as a job array: sbatch --array=1-8 …}
eval "options=(${OPTIONS:-})"
# scancel and the time limit tell every process to stop, and what is left when this shell ends is killed: it waits for pytest,
# which writes what it has found so far. Then run the task again under its own number and count: --array=3 would be another part.
trap : TERM
code=0
python -m pytest --fa-only "${options[@]}" \
  --fa-shard="$task/$SLURM_ARRAY_TASK_COUNT" \
  --fa-report=json:"$parts/part-$task.json" \
  -o cache_dir="$parts/cache-$task" || code=$?
# 1 is a finding, which the last job reports for all parts together; anything else is a task that failed.
[[ $code -le 1 ]] || exit "$code"
