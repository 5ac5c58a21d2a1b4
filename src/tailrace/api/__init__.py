"""Schemas of the HTTP API: what requests carry and what responses hold, as msgspec structs, a module for each subject.

The server reads and writes them (`tailrace.http`), clients write and read them (`tailrace.client`), so the two can't differ.
`...Body` is the JSON body of a request, `...Response` the JSON of a response; names of fields are the interface. The OpenAPI
document is made from these classes and calls schemas by their names.
"""
