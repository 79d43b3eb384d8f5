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

hash_of() { sha256sum "$1" | cut -c1-12; }

libtorch_root() { printf '%s/libtorch-2.11.0' "$FASTLLM_CACHE"; }
judges_root() { printf '%s/judges-%s' "$FASTLLM_CACHE" "$(hash_of "$FASTLLM_SOURCE/scripts/judges-requirements.txt")"; }

# build_preset PRESET [TARGET...]: configures if needed and builds, with compiler results kept in the cache.
build_preset() {
  local preset=$1
  shift
  export CCACHE_DIR=${CCACHE_DIR:-$FASTLLM_CACHE/ccache}
  # The same source in another folder is the same source.
  export CCACHE_BASEDIR=$FASTLLM_SOURCE CCACHE_NOHASHDIR=1
  (
    cd "$FASTLLM_SOURCE" || exit
    cmake --preset "$preset" -DFASTLLM_LIBTORCH_ROOT="$(libtorch_root)" "${CONFIGURE_OPTIONS[@]}"
    cmake --build --preset "$preset" --target "${@:-all}"
  )
}
