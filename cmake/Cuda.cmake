# What the GPU libraries need: nvcc, the CUDA libraries, NCCL. Nothing of it is looked for without FASTLLM_WITH_CUDA.
if(NOT FASTLLM_WITH_CUDA)
  return()
endif()
find_program(FASTLLM_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT FASTLLM_NVCC)
  message(FATAL_ERROR "expected the CUDA compiler (nvcc) in PATH, CUDA_HOME or /usr/local/cuda, found none; install the CUDA "
    "toolkit, or configure with -DFASTLLM_WITH_CUDA=OFF")
endif()
set(CMAKE_CUDA_COMPILER ${FASTLLM_NVCC})
# Machine code for A100 and H100, and the intermediate code that drivers of later GPUs compile.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know how nvcc is told about C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
# The system's own folders are searched anyhow; given as options they would come before those they must follow.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
# constexpr functions of shared headers run on both sides; lambdas may be given to kernels.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr> $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>)

get_filename_component(fastllm_cuda_root ${FASTLLM_NVCC} DIRECTORY)
get_filename_component(fastllm_cuda_root ${fastllm_cuda_root} DIRECTORY)
find_path(FASTLLM_NCCL_INCLUDE nccl.h HINTS ${fastllm_cuda_root}/include)
find_library(FASTLLM_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${fastllm_cuda_root}/lib ${fastllm_cuda_root}/lib64)
if(NOT FASTLLM_NCCL_INCLUDE OR NOT FASTLLM_NCCL_LIBRARY)
  message(FATAL_ERROR "expected NCCL (nccl.h and libnccl.so) beside the CUDA toolkit in ${fastllm_cuda_root} or in the system's "
    "folders, found none; install libnccl-dev, or configure with -DFASTLLM_WITH_CUDA=OFF")
endif()
add_library(NCCL::nccl SHARED IMPORTED)
set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${FASTLLM_NCCL_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${FASTLLM_NCCL_INCLUDE})
