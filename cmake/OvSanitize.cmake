# Applies OVERSHOT_SANITIZE to the whole tree: library, programs, simulated driver and tests carry the same runtime.
# `address` looks for undefined behaviour as well, which costs little more.
if(OVERSHOT_SANITIZE)
  if(OVERSHOT_SANITIZE STREQUAL "address")
    set(sanitizers address,undefined)
    add_compile_options(-fno-sanitize-recover=all)
  elseif(OVERSHOT_SANITIZE STREQUAL "thread")
    set(sanitizers thread)
  else()
    message(FATAL_ERROR "OVERSHOT_SANITIZE is '${OVERSHOT_SANITIZE}'; accepted: address, thread")
  endif()
  # -O1 -g1: half the time to compile of what the build type asks for, and line numbers in reports all the same.
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${sanitizers})
endif()
