#!/bin/bash
# A plugin exports its door and nothing else, and has the hardening the linker offers. Usage: check_exports.sh PLUGIN.so
set -euo pipefail
found=$(nm -D --defined-only "$1" | awk '{print $3}')
if [[ $found != fastllm_plugin_v0 ]]; then
  echo "expected $1 to export fastllm_plugin_v0 alone, found:" $found >&2
  exit 1
fi
readelf -d "$1" | grep -q BIND_NOW || { echo "expected $1 to be linked with -z now, found lazy binding" >&2; exit 1; }
