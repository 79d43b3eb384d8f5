#!/usr/bin/env bash
# All tests: sets up what they need (once), builds, runs everything through ctest, closes with a summary.
# Parts: the product as it ships (release), memory errors and undefined behaviour (asan), threads (tsan), and what is for GPUs (cuda).
# Invariant: a part that fails does not keep the others from running; the exit code is 0 only when all passed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

PARTS=(release asan tsan cuda)
suppressions=$FASTLLM_SOURCE/.ci/sanitizers
results=$FASTLLM_SOURCE/build/test-results
skipped=77 # a part's exit code
selected=()
ctest_options=()

usage() {
  cat <<EOF
usage: scripts/test.sh [PART...] [-- CTEST-OPTION...]

Parts (all, when none is named):
  release   every test on the release build: unit, abi, parity, integration, docs
  asan      AddressSanitizer and UndefinedBehaviorSanitizer: tests without LibTorch, and short training runs
  tsan      ThreadSanitizer: the data loader and all of core/data
  cuda      the libraries for GPUs, built by nvcc, and their tests; without nvcc it is skipped, without a GPU are tests that need one

Options after -- go to ctest:
  scripts/test.sh release -- -R Memmap         tests with that word in their name
  scripts/test.sh release -- -L unit           by label: unit, abi, parity, integration, docs, cuda, gpu
EOF
}

# run_tests PRESET FOLDER [CTEST-OPTION...]: the tests of a folder of the build and below
run_tests() {
  local preset=$1 folder=$2
  shift 2
  ctest --test-dir "$FASTLLM_SOURCE/build/$preset/$folder" --output-on-failure --no-tests=error -j "$(nproc)" \
    --output-junit "$results/$preset.xml" "$@" "${ctest_options[@]}"
}

part_release() {
  configure_preset release -DFASTLLM_JUDGES_PYTHON="$FASTLLM_JUDGES_PYTHON" && build_preset release && run_tests release .
}

part_asan() {
  configure_preset asan -DFASTLLM_JUDGES_PYTHON="$FASTLLM_JUDGES_PYTHON" && build_preset asan || return
  # Crashes are left to the host's own handler, which tests check; an impossible allocation fails as without asan.
  local options=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
  options+=:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0
  # Suppressed: what LibTorch keeps until exit is no leak of ours.
  ASAN_OPTIONS=$options UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0 \
    run_tests asan . -L '^(unit|abi|sanitizer)$'
}

part_tsan() {
  configure_preset tsan && build_preset tsan data_test || return
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 run_tests tsan tests/unit/data
}

# Alone: neither the program nor plugins are built.
part_cuda() {
  if ! find_nvcc >/dev/null; then
    echo "skipped: expected the CUDA compiler (nvcc) in PATH, CUDA_HOME or /usr/local/cuda, found none"
    return "$skipped"
  fi
  configure_preset cuda -DFASTLLM_WARNINGS_AS_ERRORS=ON && build_preset cuda cuda_tests && run_tests cuda tests/kernels
}

# Where cmake/Cuda.cmake looks.
find_nvcc() {
  PATH=$PATH:${CUDA_HOME:+$CUDA_HOME/bin:}/usr/local/cuda/bin command -v nvcc
}

# Counted from ctest's reports: a part that did not get as far as its tests adds none.
print_counts() {
  /usr/bin/python3 - "$@" <<'EOF'
import collections, pathlib, re, sys
import xml.etree.ElementTree as xml

reports = filter(pathlib.Path.exists, map(pathlib.Path, sys.argv[1:]))
cases = [case for report in reports for case in xml.parse(report).iter("testcase")]
state = [case.get("status") for case in cases]
for case in cases:
    if case.get("status") == "fail":
        print("failed:", case.get("name"))
# Why tests were skipped, each reason once: the line of a test's output behind the one that says so, or that line.
reasons = collections.Counter()
for case in cases:
    if case.get("status") not in ("run", "fail"):
        lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
        at = next((k for k, line in enumerate(lines) if re.search("[Ss]kipped", line)), None)
        if at is not None:
            behind = lines[at].endswith(("Skipped", "SKIPPED")) and at + 1 < len(lines)
            reasons[lines[at + behind].removeprefix("skipped: ")] += 1
for reason, count in reasons.items():
    print(f"skipped {count}: {reason}")
passed, failed = state.count("run"), state.count("fail")
print(f"{passed} passed, {failed} failed, {len(state) - passed - failed} skipped")
EOF
}

main() {
  while (($#)); do
    case $1 in
      release | asan | tsan | cuda) selected+=("$1") ;;
      -h | --help)
        usage
        return
        ;;
      --)
        shift
        ctest_options=("$@")
        break
        ;;
      *)
        usage >&2
        echo "fastllm: expected one of ${PARTS[*]}, found '$1'" >&2
        exit 2
        ;;
    esac
    shift
  done
  ((${#selected[@]})) || selected=("${PARTS[@]}")

  "$FASTLLM_SOURCE/scripts/setup.sh" --judges
  # Tests that compare with another implementation look here for it, and skip without.
  FASTLLM_JUDGES_PYTHON=$(judges_root)/bin/python
  export FASTLLM_JUDGES_PYTHON
  # Several tests at a time on few cores: threads that wait must not spin.
  export OMP_WAIT_POLICY=passive

  local part code failed=0 begin=$SECONDS part_begin reports=()
  local -A outcome
  mkdir -p -- "$results"
  for part in "${selected[@]}"; do
    say "Part $part"
    reports+=("$results/$part.xml")
    rm -f -- "$results/$part.xml"
    part_begin=$SECONDS
    "part_$part" && code=0 || code=$?
    case $code in
      0) outcome[$part]=passed ;;
      "$skipped") outcome[$part]=skipped ;;
      *)
        outcome[$part]=FAILED
        failed=1
        ;;
    esac
    outcome[$part]+=" in $((SECONDS - part_begin)) s"
  done

  say "Summary"
  for part in "${selected[@]}"; do
    printf '%-8s %s\n' "$part" "${outcome[$part]}"
  done
  print_counts "${reports[@]}"
  echo "total time $((SECONDS - begin)) s, details in $results"
  exit "$failed"
}

main "$@"
