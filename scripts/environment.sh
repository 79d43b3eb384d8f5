# shellcheck shell=bash
# What setup.sh, quickstart.sh and test.sh share: where things are kept, and how they speak. Sourced, never run.
# Invariant: everything downloaded or built once lives below $FASTLLM_CACHE, outside the checkout, so that a fresh
# checkout starts warm and removing that one folder undoes the set-up (system packages aside).

FASTLLM_SOURCE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
if [[ -z ${FASTLLM_CACHE:-} ]]; then
  if [[ -n ${XDG_CACHE_HOME:-} ]]; then
    FASTLLM_CACHE=$XDG_CACHE_HOME/fastllm
  elif [[ -n ${HOME:-} ]]; then
    FASTLLM_CACHE=$HOME/.cache/fastllm
  else
    echo "fastllm: expected a cache folder, found neither HOME, XDG_CACHE_HOME nor FASTLLM_CACHE in the environment;" \
      "set FASTLLM_CACHE to a folder with 3 GB of free space" >&2
    exit 1
  fi
fi
export FASTLLM_CACHE

say() { printf '\n==> %s\n' "$*"; }

# die SENTENCE...: one line on standard error, exit code 1.
die() {
  printf 'fastllm: %s\n' "$*" >&2
  exit 1
}

# Of what a requirements file pins; its comments do not count.
hash_of() { grep -v '^#' "$1" | sha256sum | cut -c1-12; }

libtorch_root() { printf '%s/libtorch-2.11.0' "$FASTLLM_CACHE"; }
# The program looks for this one by name (core/data/tokenizers/huggingface_tokenizer.cpp).
tokenizers_root() { printf '%s/tokenizers' "$FASTLLM_CACHE"; }
bench_root() { printf '%s/bench-%s' "$FASTLLM_CACHE" "$(hash_of "$FASTLLM_SOURCE/scripts/bench-requirements.txt")"; }
litgpt_root() { printf '%s/litgpt-%s' "$FASTLLM_CACHE" "$(hash_of "$FASTLLM_SOURCE/scripts/litgpt-requirements.txt")"; }
judges_root() { printf '%s/judges-%s' "$FASTLLM_CACHE" "$(hash_of "$FASTLLM_SOURCE/scripts/judges-requirements.txt")"; }

# Compiler results are kept in the cache; the same source in another folder is the same source.
export CCACHE_DIR=${CCACHE_DIR:-$FASTLLM_CACHE/ccache} CCACHE_BASEDIR=$FASTLLM_SOURCE CCACHE_NOHASHDIR=1

# configure_preset PRESET [-DNAME=VALUE...]
configure_preset() {
  local preset=$1
  shift
  (cd "$FASTLLM_SOURCE" && cmake --preset "$preset" -DFASTLLM_LIBTORCH_ROOT="$(libtorch_root)" "$@")
}

# build_preset PRESET [TARGET...]: everything, or these targets.
build_preset() {
  local preset=$1
  shift
  (cd "$FASTLLM_SOURCE" && cmake --build --preset "$preset" --target "${@:-all}")
}
