#!/usr/bin/env bash
# From a bare Debian 12 to a trained model in one command: set-up (once), release build, data from this computer's own
# Python library, training. Run again, it starts a new experiment, or goes on with one that was interrupted.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

usage() {
  cat <<EOF
usage: scripts/quickstart.sh [--quick] [a.b.c=VALUE ...]

Sets up, builds, prepares data, and trains examples/quickstart.yaml: about three minutes on two cores once built.
  --quick        a few steps only, to see that everything works
  a.b.c=VALUE    other values than those of examples/quickstart.yaml
EOF
}

host=build/release/bin/fastllm-host
data=runs/quickstart-data

build() {
  local log=$FASTLLM_CACHE/quickstart-build.log
  say "Building $host and its plugins (some minutes the first time)"
  if [[ -t 1 ]]; then
    log=/dev/stdout  # shows its progress
  fi
  { configure_preset release && build_preset release fastllm-host plugin_gpt plugin_distributed; } >"$log" 2>&1 ||
    die "the build failed; its last words are in $log"
}

prepare_data() {
  local library
  library=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  say "Preparing data: the Python source in $library, every 20th file held out"
  "$host" prepare --output "$data" --holdout-every 20 "$library/**/*.py"
}

# The first experiment that is not done: a new one, or one that was interrupted.
choose_experiment() {
  local experiment=runs/quickstart number=2
  while [[ -e $experiment/done ]]; do
    experiment=runs/quickstart-$((number++))
  done
  echo "$experiment"
}

# Of the last evaluation, over all starts of the experiment.
print_held_out_loss() {
  /usr/bin/python3 - "$1" <<'EOF'
import json, math, pathlib, sys

folders = sorted(pathlib.Path(sys.argv[1], "runs").iterdir(), key=lambda p: int(p.name))
lines = [json.loads(line) for folder in folders for line in (folder / "metrics.jsonl").open()]
held_out = [m for m in lines if m["phase"].startswith("validation")][-1]
print(f"Held-out Python source: {held_out['language_model_loss'] / math.log(2):.3f} bits per byte "
      "(guessing: 8; knowing the byte before: about 3.6).")
EOF
}

print_what_next() {
  local experiment=$1
  cat <<EOF

Where to look
  $experiment/runs/0/metrics.jsonl       every number, one JSON object a line
  $experiment/checkpoint/                what a next run resumes from
  $experiment/runs/0/provenance.yaml     what made this run

What to try next
  $host --plugin gpt examples/quickstart.yaml run.experiment_dir=$experiment training.train_iters=600
      goes on where this run stopped (and Ctrl-C stops it safely at any step)
  $host --plugin gpt examples/quickstart.yaml run.experiment_dir=runs/frozen 'model.base_model.transformer.mlp_lr_scale=[0]'
      the same with frozen MLP layers: less memory, shorter steps, their weights stay as they are
  $host --plugin gpt
      the default model of 182 million parameters: what it would allocate
  $host --plugin gpt examples/quickstart.yaml --validate --verbose -1
      every configuration key with its value; docs/users/training.md explains them
EOF
}

main() {
  local overrides=()
  while (($#)); do
    case $1 in
      --quick)
        overrides+=(training.train_iters=20 training.logs.interval=5 'training.validation={interval: 10, iterations: 2}')
        ;;
      -h | --help)
        usage
        return
        ;;
      *=*) overrides+=("$1") ;;
      *)
        usage >&2
        echo "fastllm: expected --quick or a.b.c=VALUE, found '$1'" >&2
        exit 2
        ;;
    esac
    shift
  done

  cd "$FASTLLM_SOURCE"
  scripts/setup.sh
  build
  [[ -e $data ]] || prepare_data

  local experiment code=0
  experiment=$(choose_experiment)
  local command=("$host" --plugin gpt examples/quickstart.yaml "run.experiment_dir=$experiment" "${overrides[@]}")
  say "Training: ${command[*]}"
  "${command[@]}" || code=$?
  if ((code == 3)); then
    say "Stopped and saved; run scripts/quickstart.sh again to go on"
    exit 3
  elif ((code)); then
    die "training ended with code $code; what it printed says why"
  fi
  touch "$experiment/done"
  say "Done"
  print_held_out_loss "$experiment"
  print_what_next "$experiment"
}

main "$@"
