# room(NAME FOLDER USES...): a static library of every *.c in FOLDER and one level of folders below it.
function(room name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c ${CMAKE_SOURCE_DIR}/${folder}/*/*.c)
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${ARGN})
endfunction()

# embed(TARGET DIR json|yaml): puts files into TARGET as constant byte arrays with a lookup table.
#   json: every schemas/*.json    -> embedded_schemas[] (schemas/embedded.h)
#   yaml: openapi.yaml            -> embedded_openapi   (handlers/openapi.h)
function(embed target dir kind)
  if(kind STREQUAL "json")
    file(GLOB inputs CONFIGURE_DEPENDS ${dir}/*.json)
  else()
    set(inputs ${dir}/openapi.yaml)
  endif()
  set(out ${CMAKE_BINARY_DIR}/embedded_${kind}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DKIND=${kind} "-DINPUTS=${inputs}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${inputs} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
