#!/usr/bin/env bash
# An audit as a Slurm job array: each task audits one part on its own GPU, and the merge waits for all of them.
#
#   audit=$(sbatch --parsable --array=1-8 --gres=gpu:1 examples/recipes/slurm_array.sh)
#   sbatch --dependency=afterany:$audit examples/recipes/slurm_array.sh merge
#
# OPTIONS is the audit itself, as you would type it behind pytest on one machine; ini settings need not be repeated.
#SBATCH --job-name=fa-audit
#SBATCH --time=00:30:00
set -uo pipefail
parts=${PARTS:-audit-parts}
mkdir -p "$parts"

if [[ ${1:-} == merge ]]; then
  merge=()
  for part in "$parts"/part-*.json; do merge+=("--fa-merge=$part"); done
  # A part that is missing is a task that died before it could write: the audit is not complete.
  if [[ ${#merge[@]} -ne $(cat "$parts/count") ]]; then
    echo "only ${#merge[@]} of $(cat "$parts/count") parts were written; run the missing tasks again" >&2
    exit 1
  fi
  exec python -m pytest -m fa_protocol "${merge[@]}" --fa-report=json:audit.json --fa-report=html:audit.html
fi

count=${SLURM_ARRAY_TASK_COUNT:?run this as a job array: sbatch --array=1-8 …}
echo "$count" > "$parts/count"
# shellcheck disable=SC2086 (OPTIONS holds several options)
python -m pytest -m fa_protocol ${OPTIONS:-} \
  --fa-shard="$SLURM_ARRAY_TASK_ID/$count" \
  --fa-report=json:"$parts/part-$SLURM_ARRAY_TASK_ID.json" \
  -o cache_dir="$parts/cache-$SLURM_ARRAY_TASK_ID"
code=$?
# 1 is a finding, which the merge reports for all parts together; anything else is a task that failed.
[[ $code -le 1 ]] || exit "$code"
