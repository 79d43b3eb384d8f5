// FASTLLM_CLONES before a function: compiled for several instruction sets, the best one is chosen when the program starts.
// For loops that the compiler turns into vector code. Not with sanitizers, which do not know such functions.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FASTLLM_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FASTLLM_CLONES
#endif
