#!/bin/bash
# A build without CUDA has none of it: no product needs a library of CUDA or NCCL, calls one, or holds
# device code. (LibTorch names such libraries itself, which nothing here does.) Usage: no_cuda.sh PRODUCT...
set -euo pipefail
failed=0
complain() {
  echo "expected $1 to have nothing of CUDA, found:" $2 >&2
  failed=1
}
for product in "$@"; do
  needed=$(readelf -d "$product" | grep NEEDED | grep -oE 'lib(cuda|cudart|nccl|cublas|cudnn|nvrtc|nvidia)[^]]*' || true)
  [[ -z $needed ]] || complain "$product" "$needed"
  called=$(nm -D --undefined-only "$product" | awk '{print $2}' | grep -E '^(__cuda|cuda[A-Z]|cu[A-Z]|nccl|cublas|cudnn)' || true)
  [[ -z $called ]] || complain "$product" "$called"
  if readelf -S --wide "$product" | grep -q nv_fatbin; then complain "$product" "a section .nv_fatbin"; fi
done
exit "$failed"
