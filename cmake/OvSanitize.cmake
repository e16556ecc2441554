# Applies OVERSHOT_SANITIZE to the whole tree: library, programs, simulated driver and tests carry the same runtime.
if(OVERSHOT_SANITIZE)
  if(NOT OVERSHOT_SANITIZE MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "OVERSHOT_SANITIZE is '${OVERSHOT_SANITIZE}'; accepted: address, undefined, thread")
  endif()
  # -O1 -g1: half the time to compile of what the build type asks for, and line numbers in reports all the same.
  add_compile_options(-fsanitize=${OVERSHOT_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${OVERSHOT_SANITIZE})
  if(OVERSHOT_SANITIZE STREQUAL "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
endif()
