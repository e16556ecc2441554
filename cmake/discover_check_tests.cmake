# Run after a Check runner was built: writes one CTest test per line of `RUNNER --list`.
string(REPLACE "|" ";" settings "${ENVIRONMENT}")
execute_process(COMMAND ${CMAKE_COMMAND} -E env ${settings} ${RUNNER} --list
  OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${RUNNER} --list failed: ${status}")
endif()
string(REPLACE "\n" ";" names "${listing}")
string(REPLACE "|" ";" labels "${LABELS}")
set(script "")
foreach(name IN LISTS names)
  if(name)
    string(APPEND script "add_test([=[${name}]=] [=[${RUNNER}]=] --case [=[${name}]=])\n"
      "set_tests_properties([=[${name}]=] PROPERTIES TIMEOUT ${TIMEOUT} SKIP_RETURN_CODE 77 "
      "LABELS [=[${labels}]=] ENVIRONMENT [=[${settings}]=])\n")
  endif()
endforeach()
file(WRITE ${OUTPUT} "${script}")
