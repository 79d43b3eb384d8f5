# Everything from outside, found once. LibTorch is looked for without CUDA: only torch_cpu and c10 are linked.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem program_options)
# Debian's package of the library has no CMake file.
find_path(FASTLLM_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
find_library(FASTLLM_SENTENCEPIECE_LIBRARY sentencepiece)
if(NOT FASTLLM_SENTENCEPIECE_INCLUDE OR NOT FASTLLM_SENTENCEPIECE_LIBRARY)
  message(FATAL_ERROR "expected the SentencePiece library with its header, found none; run scripts/setup.sh, or install "
    "libsentencepiece-dev")
endif()
add_library(SentencePiece::sentencepiece SHARED IMPORTED)
set_target_properties(SentencePiece::sentencepiece PROPERTIES IMPORTED_LOCATION ${FASTLLM_SENTENCEPIECE_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${FASTLLM_SENTENCEPIECE_INCLUDE})
# Headers of the library inside LibTorch that carries messages between ranks; the wheel has none.
if(FASTLLM_WITH_LIBTORCH)
  find_path(FASTLLM_GLOO_INCLUDE gloo/context.h)
  if(NOT FASTLLM_GLOO_INCLUDE)
    message(FATAL_ERROR "expected Gloo's headers (gloo/context.h), found none; run scripts/setup.sh, or install "
      "libgloo-dev")
  endif()
endif()
if(FASTLLM_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

include(Cuda)

# yaml-cpp 0.7 exports a plain target name.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(fastllm_yaml INTERFACE)
  target_link_libraries(fastllm_yaml INTERFACE yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS fastllm_yaml)
endif()

# The wheel lies in a user cache folder, put there by scripts/setup.sh; a developer may point elsewhere.
if(NOT FASTLLM_LIBTORCH_ROOT)
  if(DEFINED ENV{FASTLLM_LIBTORCH_ROOT})
    set(FASTLLM_LIBTORCH_ROOT $ENV{FASTLLM_LIBTORCH_ROOT})
  elseif(DEFINED ENV{FASTLLM_CACHE})
    set(FASTLLM_LIBTORCH_ROOT $ENV{FASTLLM_CACHE}/libtorch-2.11.0)
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(FASTLLM_LIBTORCH_ROOT $ENV{XDG_CACHE_HOME}/fastllm/libtorch-2.11.0)
  else()
    set(FASTLLM_LIBTORCH_ROOT $ENV{HOME}/.cache/fastllm/libtorch-2.11.0)
  endif()
endif()
set(fastllm_torch ${FASTLLM_LIBTORCH_ROOT}/torch)
if(NOT EXISTS ${fastllm_torch}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "expected LibTorch 2.11.0 (torch/lib/libtorch_cpu.so) under ${FASTLLM_LIBTORCH_ROOT}, "
    "found none; run scripts/setup.sh, or set FASTLLM_LIBTORCH_ROOT to a folder that holds an unpacked torch wheel")
endif()
foreach(lib torch_cpu c10)
  add_library(torch::${lib} SHARED IMPORTED)
  set_target_properties(torch::${lib} PROPERTIES IMPORTED_LOCATION ${fastllm_torch}/lib/lib${lib}.so
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1")
endforeach()
add_library(fastllm_torch_headers INTERFACE)
target_include_directories(fastllm_torch_headers SYSTEM INTERFACE
  ${fastllm_torch}/include ${fastllm_torch}/include/torch/csrc/api/include)
add_library(fastllm_torch INTERFACE)
target_link_libraries(fastllm_torch INTERFACE fastllm_torch_headers torch::torch_cpu torch::c10)
# libtorch_cpu names CUDA libraries that its own rpath finds at run time.
target_link_options(fastllm_torch INTERFACE -Wl,--allow-shlib-undefined)
add_library(torch::torch ALIAS fastllm_torch)

# DLPack's header comes from the wheel, so that a plain C plugin needs nothing else of LibTorch.
configure_file(${fastllm_torch}/include/ATen/dlpack.h ${CMAKE_BINARY_DIR}/include/dlpack/dlpack.h COPYONLY)
