# Tests are registered through these two functions only, so that every test carries a label, a time limit and the
# sanitizers' settings, and so that exit status 77 means "skipped" everywhere.
#
#   ov_add_test(NAME n LABELS l... COMMAND c... [ENVIRONMENT VAR=value...] [TIMEOUT seconds] [RUN_SERIAL])
#   ov_add_check_tests(TARGET t LABELS l... [ENVIRONMENT VAR=value...] [TIMEOUT seconds])
#       One CTest test per Check test function of a runner made by ov_add_check_runner(), named <suite>.<function>.
#   ov_add_check_runner(TARGET t SOURCES test_a.c test_b.c ...)
#       A runner of the suites a_suite(), b_suite(), ... : test_<name>.c defines `Suite *<name>_suite(void)`.

set(OV_TEST_TIMEOUT 120)
if(OVERSHOT_SANITIZE)
  set(OV_TEST_TIMEOUT 480)
endif()

# Where a test counts plans or passes, it is not a matter of how fast a thread is. Those of that thread set it again.
# verify_asan_link_order: a preloaded library comes before the sanitizer's, which is as it should be here.
set(OV_TEST_ENVIRONMENT
  "OVERSHOT_PLANNING=wait"
  "ASAN_OPTIONS=verify_asan_link_order=0:detect_stack_use_after_return=1:abort_on_error=0"
  "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp")

function(ov_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "RUN_SERIAL" "NAME;TIMEOUT" "LABELS;COMMAND;ENVIRONMENT")
  if(NOT arg_NAME OR NOT arg_LABELS OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "ov_add_test needs NAME, LABELS and COMMAND (${ARGV})")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${OV_TEST_TIMEOUT})
  elseif(OVERSHOT_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  set_tests_properties(${arg_NAME} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${OV_TEST_ENVIRONMENT};${arg_ENVIRONMENT}")
  if(arg_RUN_SERIAL)
    set_tests_properties(${arg_NAME} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

function(ov_add_check_runner)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET" "SOURCES")
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(OV_CHECK REQUIRED IMPORTED_TARGET check)
  set(declarations "")
  set(rows "")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(GET source STEM stem)
    string(REGEX REPLACE "^test_" "" suite ${stem})
    string(APPEND declarations "Suite *${suite}_suite(void);\n")
    string(APPEND rows "    {\"${suite}\", ${suite}_suite},\n")
  endforeach()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}_suites.c)
  file(CONFIGURE OUTPUT ${table} @ONLY CONTENT
    "#include \"check_runner.h\"\n\n${declarations}\nconst struct ov_suite ov_suites[] = {\n${rows}    {0, 0},\n};\n")
  add_executable(${arg_TARGET} ${arg_SOURCES} ${table} ${CMAKE_SOURCE_DIR}/tests/unit/main.c)
  target_include_directories(${arg_TARGET} PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
  # The runner sees each registration, which Check's own interface cannot filter or list one by one.
  target_link_options(${arg_TARGET} PRIVATE -Wl,--wrap=_tcase_add_test)
  target_link_libraries(${arg_TARGET} PRIVATE ov_warnings PkgConfig::OV_CHECK)
endfunction()

function(ov_add_check_tests)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;TIMEOUT" "LABELS;ENVIRONMENT")
  if(NOT arg_TARGET OR NOT arg_LABELS)
    message(FATAL_ERROR "ov_add_check_tests needs TARGET and LABELS")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${OV_TEST_TIMEOUT})
  endif()
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}_found.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}_include.cmake)
  # CTest splits property values at semicolons, so lists travel with another separator.
  list(JOIN arg_LABELS "|" labels)
  list(JOIN OV_TEST_ENVIRONMENT "|" environment)
  if(arg_ENVIRONMENT)
    list(JOIN arg_ENVIRONMENT "|" more)
    string(APPEND environment "|${more}")
  endif()
  add_custom_command(TARGET ${arg_TARGET} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -D "RUNNER=$<TARGET_FILE:${arg_TARGET}>" -D "LABELS=${labels}"
      -D "ENVIRONMENT=${environment}" -D "TIMEOUT=${arg_TIMEOUT}" -D "OUTPUT=${found}"
      -P ${CMAKE_SOURCE_DIR}/cmake/discover_check_tests.cmake)
  file(WRITE ${include}
    "if(EXISTS \"${found}\")\n  include(\"${found}\")\nelse()\n"
    "  add_test(${arg_TARGET}.not_built ${arg_TARGET}.not_built)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
