package rulefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	testkit.Must(t, err)
	c := jsonschema.NewCompiler()
	testkit.Must(t, c.AddResource("schema.json", doc))
	schema, err := c.Compile("schema.json")
	testkit.Must(t, err)
	return schema
}

// againstSchema holds each document of a file against the schema, as an editor would.
func againstSchema(t *testing.T, schema *jsonschema.Schema, file string) error {
	t.Helper()
	data, err := os.ReadFile(file)
	testkit.Must(t, err)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		text, err := json.Marshal(named(doc)) // also turns what YAML knows and JSON does not into text
		if err != nil {
			return err
		}
		if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); doc != nil && err != nil {
			return err
		}
	}
}

// named turns the keys of maps into text, as a JSON file would have them.
func named(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = named(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = named(v[k])
		}
	case map[any]any:
		m := make(map[string]any)
		for k := range v {
			m[fmt.Sprint(k)] = named(v[k])
		}
		return m
	}
	return v
}

func TestSchemaAcceptsValidFiles(t *testing.T) {
	schema := compileSchema(t)
	files, err := filepath.Glob("testdata/valid/*.*")
	if err != nil || len(files) == 0 {
		t.Fatal("no files: ", err)
	}
	for _, file := range append(files, "sample.yaml", "../../../testnet/compose/rules/rules.yaml") {
		if err := againstSchema(t, schema, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// beyondSchema are the files whose fault no schema can see: names that are given twice, limits that only arithmetic
// finds, YAML's own.
var beyondSchema = []string{
	"deep", "descriptor_twice", "empty", "name_too_long", "no_domain", "parent", "wildcard_twice", "window_too_long",
	"window_too_short",
}

func TestSchemaRefusesRejectedFiles(t *testing.T) {
	schema := compileSchema(t)
	files, err := filepath.Glob("testdata/reject/*.*")
	if err != nil || len(files) == 0 {
		t.Fatal("no files: ", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		refused := againstSchema(t, schema, file) != nil
		if beyond := slices.Contains(beyondSchema, name); refused == beyond {
			t.Errorf("%s is refused: %v, but named as beyond the schema: %v", name, refused, beyond)
		}
	}
}
