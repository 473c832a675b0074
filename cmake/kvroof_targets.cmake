# kvroof_join(target): its files are compiled several at a time, which from scratch takes a third of the time.
function(kvroof_join target)
  if(KVROOF_JOIN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # GCC takes what an included file keeps to itself for a header's.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# kvroof_library(name DEPENDS target...): the library kvroof_<name> of all .cpp files of the calling folder.
# Sources are globbed so that a new policy or analysis is one new file and one table line.
function(kvroof_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  add_library(kvroof_${name} STATIC ${sources})
  target_link_libraries(kvroof_${name} PUBLIC kvroof_options ${ARG_DEPENDS})
  kvroof_join(kvroof_${name})
endfunction()

# kvroof_for_size(target...): code without inner loops (verbs, catalogs), where compiling counts for more than running.
# Under sanitizers, whose checks of what a compiler inlines take it longest, it is not optimised at all.
function(kvroof_for_size)
  foreach(target ${ARGN})
    if(KVROOF_SANITIZE)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O0>")
    else()
      # GCC sees uninitialised values in std::optional where it does not inline.
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Os;-Wno-maybe-uninitialized>")
    endif()
  endforeach()
endfunction()
