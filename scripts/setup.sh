#!/usr/bin/env bash
# Installs what building and testing need, each part once: system packages (apt), LibTorch (PyPI, pinned by hash),
# and, when asked, Python environments: for tokenizer.json, the tests' references, the benchmarks' peers. quickstart.sh and test.sh call it; running it by hand is fine.
# Invariant: a part that was interrupted never looks complete; running again finishes the work.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

PYTHON=/usr/bin/python3  # Debian's; the wheels are for its version
BUILD_PACKAGES=(
  ca-certificates ccache cmake g++ libboost-dev libboost-filesystem-dev libboost-program-options-dev libfmt-dev libgloo-dev
  libsentencepiece-dev libspdlog-dev libssl-dev libyaml-cpp-dev ninja-build nlohmann-json3-dev python3 python3-venv libgtest-dev libgmock-dev
)
TEST_PACKAGES=(clang)

usage() {
  cat <<EOF
usage: scripts/setup.sh [--tokenizers] [--judges] [--bench]

Installs, each once:
  system packages    with apt, as root or through sudo
  LibTorch 2.11.0    into $(libtorch_root)
  --tokenizers       Hugging Face's package that reads tokenizer.json, in $(tokenizers_root)
  --judges           what the tests need besides: clang, and PyTorch and Transformers in $(judges_root)
  --bench            what bench/ compares with besides the judges: Hugging Face datasets in $(bench_root),
                     LitGPT in $(litgpt_root)

FASTLLM_CACHE names another folder than ${FASTLLM_CACHE}.
EOF
}

# need_space FOLDER MEGABYTES WHAT: refuses early instead of filling the disk.
need_space() {
  local folder=$1 needed=$2 what=$3 available
  available=$(df --output=avail -B1M "$folder" | tail -n 1 | tr -d ' ')
  ((available >= needed)) || die "expected $needed MB of free disk space at $folder for $what, found $available MB;" \
    "free some, or set FASTLLM_CACHE to a folder on another disk"
}

# explain LOG WHAT: ends with one sentence on why a download failed.
explain() {
  local log=$1 what=$2
  if grep -qEi 'no space left on device' "$log"; then
    die "the disk filled up while getting $what; free some space and run again (details: $log)"
  elif grep -qEi 'name resolution|resolving|could not resolve|could not connect|network is unreachable|new connection|connection (refused|timed out|broken)|timed out' "$log"; then
    die "expected a network connection to get $what, found none; connect (or set https_proxy) and run again" \
      "(details: $log)"
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    die "expected the files pinned in scripts/*-requirements.txt for $what, the package index sent others;" \
      "check which index pip is set to use (details: $log)"
  fi
  die "could not get $what: $(grep -E '^(E|ERROR):' "$log" | tail -n 1 || true); see $log"
}

check_system() {
  local id='' version='' machine
  machine=$(uname -m)
  [[ $machine == x86_64 ]] || die "expected an x86_64 computer, found $machine; LibTorch's pinned build runs on x86_64 only"
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "${ID:-}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  [[ $id == debian && $version == 12 ]] || die "expected Debian 12, found ${id:-an unknown system} ${version:-};" \
    "use a Debian 12 machine or container"
}

install_packages() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo)
    elif command -v sudo >/dev/null && [[ -t 0 && -t 2 ]]; then
      as_root=(sudo)  # asks for the password
    else
      die "expected root or sudo to install ${#missing[@]} system packages, found neither; ask an administrator to run:" \
        "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  need_space /var/cache/apt 1200 "system packages"
  say "Installing ${#missing[@]} system packages: ${missing[*]}"
  local log=$FASTLLM_CACHE/apt.log
  # A third-party source that is down must not stop us, so only the installation's own success counts.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1 || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends "${missing[@]}" \
    </dev/null >>"$log" 2>&1 || explain "$log" "system packages (${missing[*]})"
}

check_python() {
  local version
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version='none that runs'
  [[ $version == 3.11 ]] || die "expected Python 3.11 at $PYTHON, found $version; reinstall Debian's: apt-get install --reinstall python3 python3.11"
}

# run_pip PYTHON LOG ARGUMENTS...: pip that minds its index and proxy settings but not those for other folders.
run_pip() {
  local python=$1 log=$2
  shift 2
  env -u PIP_TARGET -u PIP_PREFIX -u PIP_USER -u PIP_REQUIRE_VIRTUALENV -u PYTHONPATH -u PYTHONHOME \
    TMPDIR="$scratch" "$python" -m pip --disable-pip-version-check install --no-deps --require-hashes \
    --only-binary :all: --retries 2 "$@" >"$log" 2>&1
}

# The stamp holds the hash of what was pinned, and is written last.
is_installed() { [[ -f $1/.fastllm-installed && $(<"$1/.fastllm-installed") == "$2" ]]; }

install_libtorch() {
  local pins=$FASTLLM_SOURCE/scripts/libtorch-requirements.txt root log=$FASTLLM_CACHE/libtorch.log
  root=$(libtorch_root)
  is_installed "$root" "$(hash_of "$pins")" && return
  # The wheel, its unpacked files, and pip's own copy for the next time.
  need_space "$FASTLLM_CACHE" 2400 "LibTorch"
  say "Installing LibTorch 2.11.0 into $root (0.6 GB to download)"
  # pip on Debian installs into environments only; this one exists to run it.
  "$PYTHON" -m venv "$scratch/pip" >"$log" 2>&1 || explain "$log" "a Python environment"
  run_pip "$scratch/pip/bin/python" "$log" --no-compile --target "$scratch/libtorch" -r "$pins" || explain "$log" "LibTorch 2.11.0"
  hash_of "$pins" >"$scratch/libtorch/.fastllm-installed"
  if [[ -e $root ]]; then
    mv -- "$root" "$scratch/replaced"
  fi
  mv -- "$scratch/libtorch" "$root"
}

# install_environment NAME ROOT MEGABYTES WHAT: a Python environment with what scripts/NAME-requirements.txt pins. One that
# was complete for other pins is brought up to date, under its new name: most of it is the same.
install_environment() {
  local name=$1 root=$2 megabytes=$3 what=$4
  local pins=$FASTLLM_SOURCE/scripts/$name-requirements.txt log=$FASTLLM_CACHE/$name.log previous
  is_installed "$root" "$(hash_of "$pins")" && return
  need_space "$FASTLLM_CACHE" "$megabytes" "$what"
  say "Installing $what into $root"
  # Without its stamp an environment counts as absent.
  for previous in "$FASTLLM_CACHE/$name" "$FASTLLM_CACHE/$name"-*; do
    [[ -f $previous/.fastllm-installed && ! -L $previous ]] || continue
    rm -- "$previous/.fastllm-installed"
    [[ $previous == "$root" ]] || { rm -rf -- "$root" && mv -- "$previous" "$root"; }
    # Only its Python is called, never a script that names the old folder.
    if run_pip "$root/bin/python" "$log" -r "$pins"; then
      hash_of "$pins" >"$root/.fastllm-installed"
      return
    fi
  done
  rm -rf -- "$root"  # it cannot be moved into place when complete, so it grows there
  "$PYTHON" -m venv "$root" >"$log" 2>&1 || explain "$log" "a Python environment"
  run_pip "$root/bin/python" "$log" -r "$pins" || explain "$log" "$what"
  hash_of "$pins" >"$root/.fastllm-installed"
}

main() {
  local judges=0 tokenizers=0 bench=0
  while (($#)); do
    case $1 in
      --judges) judges=1 ;;
      --tokenizers) tokenizers=1 ;;
      --bench) bench=1 ;;
      -h | --help)
        usage
        return
        ;;
      *)
        usage >&2
        echo "fastllm: expected --tokenizers, --judges or --bench, found '$1'" >&2
        exit 2
        ;;
    esac
    shift
  done

  check_system
  mkdir -p -- "$FASTLLM_CACHE" 2>/dev/null || true
  [[ -d $FASTLLM_CACHE && -w $FASTLLM_CACHE ]] || die "expected a folder to write to at $FASTLLM_CACHE, found none;" \
    "set FASTLLM_CACHE to another folder"

  # One set-up at a time; the lock goes with the process.
  exec 9>"$FASTLLM_CACHE/setup.lock"
  if ! flock -n 9; then
    say "Waiting for another set-up in $FASTLLM_CACHE to finish"
    flock 9
  fi
  # Work set aside by an interrupted run.
  rm -rf -- "$FASTLLM_CACHE"/setup-??????
  scratch=$(mktemp -d "$FASTLLM_CACHE/setup-XXXXXX")
  trap 'rm -rf -- "$scratch"' EXIT

  local packages=("${BUILD_PACKAGES[@]}")
  ((!judges)) || packages+=("${TEST_PACKAGES[@]}")
  install_packages "${packages[@]}"
  check_python
  install_libtorch
  ((!tokenizers)) || install_environment tokenizers "$(tokenizers_root)" 200 "the package tokenizers"
  # 3 GB to download.
  ((!judges)) || install_environment judges "$(judges_root)" 9500 "the tests' PyTorch and Transformers"
  ((!bench)) || install_environment bench "$(bench_root)" 800 "the benchmarks' Hugging Face datasets"
  ((!bench)) || install_environment litgpt "$(litgpt_root)" 9500 "the benchmarks' LitGPT"
}

main "$@"
