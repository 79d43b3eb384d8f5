# The few ways to make a target here; each says warnings, visibility and include rules once.

add_library(fastllm_options INTERFACE)
target_compile_options(fastllm_options INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall -Wextra -Wpedantic -Wshadow>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # nvcc takes no warnings but the host compiler's, whose code it makes: pedantry would be about that.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<BOOL:${FASTLLM_WARNINGS_AS_ERRORS}>:$<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings,-Werror>>)
if(FASTLLM_SANITIZE)
  target_compile_options(fastllm_options INTERFACE -fsanitize=${FASTLLM_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(fastllm_options INTERFACE -fsanitize=${FASTLLM_SANITIZE})
endif()

# fastllm_add_core(NAME SOURCES a.cpp ... [DEPENDS core_x ...] [LINKS lib ...])
# A folder of core: static library core_NAME. Includes spell the repository path ("core/base/error.hpp").
# DEPENDS are other folders of core (public); LINKS are outside libraries, which stay private.
function(fastllm_add_core name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LINKS" ${ARGN})
  add_library(core_${name} STATIC ${arg_SOURCES})
  target_include_directories(core_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(core_${name} PUBLIC ${arg_DEPENDS} fastllm::sdk_c PRIVATE fastllm_options ${arg_LINKS})
  set_target_properties(core_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# fastllm_add_plugin(NAME SOURCES a.cpp ... [LINKS lib ...] [OUTPUT_DIRECTORY dir])
# libfastllm_NAME.so: exports fastllm_plugin_v0 alone, sees <fastllm/...> and its own folder, never core/.
function(fastllm_add_plugin name)
  cmake_parse_arguments(arg "" "OUTPUT_DIRECTORY" "SOURCES;LINKS" ${ARGN})
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY ${FASTLLM_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  add_library(plugin_${name} MODULE ${arg_SOURCES})
  set_target_properties(plugin_${name} PROPERTIES OUTPUT_NAME fastllm_${name} PREFIX lib
    LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(plugin_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(plugin_${name} PRIVATE fastllm::sdk fastllm_options ${arg_LINKS})
  target_link_options(plugin_${name} PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/sdk/plugin.map -Wl,--exclude-libs,ALL -Wl,-z,now,-z,relro)
  if(NOT FASTLLM_SANITIZE)
    target_link_options(plugin_${name} PRIVATE -Wl,--no-undefined)
  endif()
  set_property(TARGET plugin_${name} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/sdk/plugin.map)
endfunction()

# fastllm_add_test(NAME SOURCES a_test.cpp ... [LINKS lib ...] [LABELS unit ...] [TIMEOUT s])
# One GoogleTest program, registered case by case. FASTLLM_SOURCE_DIR and FASTLLM_BINARY_DIR are defined for it.
function(fastllm_add_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} fastllm_options GTest::gmock GTest::gtest_main)
  # What a test checks is built as it ships; the checks themselves need not be fast, but quick to compile.
  target_compile_options(${name} PRIVATE -O0)
  target_compile_definitions(${name} PRIVATE
    FASTLLM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FASTLLM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
