# Compiler flags of every kvroof target, carried by the interface library kvroof_options.
add_library(kvroof_options INTERFACE)
target_include_directories(kvroof_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# Contraction to fma would make results depend on the instruction set; decisions must not.
target_compile_options(kvroof_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_compile_options(kvroof_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns falsely about std::string's operator+ (GCC bug 105651).
  target_compile_options(kvroof_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(KVROOF_WERROR)
  target_compile_options(kvroof_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(KVROOF_SANITIZE)
  # KVROOF_UNCHECKED, a property of targets, names what is not looked for in their own code.
  set(unchecked "$<TARGET_PROPERTY:KVROOF_UNCHECKED>")
  target_compile_options(kvroof_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KVROOF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1>
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${unchecked}>>:-fno-sanitize=${unchecked}>")
  target_link_options(kvroof_options INTERFACE -fsanitize=${KVROOF_SANITIZE})
endif()

find_program(KVROOF_CCACHE ccache)
if(KVROOF_CCACHE)
  # What one checkout compiled serves another: paths below it are hashed as seen from the build folder.
  set(launcher ${KVROOF_CCACHE})
  if(NOT DEFINED ENV{CCACHE_BASEDIR})
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${KVROOF_CCACHE})
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated)
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.hpp.in ${CMAKE_BINARY_DIR}/generated/kvroof_version.hpp @ONLY)
