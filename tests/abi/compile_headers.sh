#!/bin/bash
# Compiles each header of the contract alone and twice, the frozen layout, and the smallest plugin, with one compiler as one
# age of the language; every warning is an error. Usage: compile_headers.sh COMPILER c|c++ STANDARD SDK_INCLUDE DLPACK_INCLUDE
set -euo pipefail
compiler=$1 language=$2 standard=$3 sdk=$4 dlpack=$5
here=$(cd "$(dirname "$0")" && pwd)
count=0
compile() {
  "$compiler" -x "$language" -std="$standard" -Wall -Wextra -Wshadow -pedantic -Werror -Wno-unused-local-typedefs -fsyntax-only \
    -I"$sdk" -I"$here" -isystem "$dlpack" - <<<"$1" || { echo "as $standard with $compiler: $1" >&2; exit 1; }
  count=$((count + 1))
}
for header in "$sdk"/fastllm/*.h; do
  name=fastllm/$(basename "$header")
  compile "#include <$name>"$'\n'"#include <$name>"
done
compile '#include "layout.h"'
compile '#include "smallest_plugin.h"'
if [[ $standard == c++20 ]]; then  # the C++ glue
  compile '#include <fastllm/plugin.hpp>'
  compile '#include <fastllm/model.hpp>'
  compile '#include <fastllm/checkpoint_format.hpp>'
fi
echo "$count files compiled as $standard with $compiler"
[[ $count -ge 9 ]]
