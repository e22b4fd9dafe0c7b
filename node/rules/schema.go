package rules

import _ "embed"

// Schema is the JSON Schema (draft 2020-12) of a document of a rule file, for editors. It must not be written to.
//
//go:embed schema.json
var Schema []byte
