# ov_warnings: link it PRIVATE to everything compiled in the tree.
add_library(ov_warnings INTERFACE)
target_compile_options(ov_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion>
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${OVERSHOT_WERROR}>>:-Werror>)
