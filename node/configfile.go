package node

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SampleConfig is a configuration file with every setting at its default, and what each means.
//
//go:embed edgelimit.yaml
var SampleConfig []byte

// ReadConfig reads a configuration file over the defaults. A setting that it does not know is an error, with its line.
func ReadConfig(name string) (Config, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	cfg, err := parseConfig(b)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", name, err)
	}
	return cfg, nil
}

// renamed are settings of earlier versions, and what takes their places.
var renamed = map[string]string{"max_keys": "memory, a budget in bytes as in 256MiB, takes its place"}

// explained adds to errors about keys that were known once what they became.
func explained(err error) error {
	if list, ok := errors.AsType[*yaml.TypeError](err); ok {
		for i, e := range list.Errors {
			for key, instead := range renamed {
				if strings.Contains(e, "field "+key+" not found") {
					list.Errors[i] = e + ": " + instead
				}
			}
		}
	}
	return err
}

func parseConfig(b []byte) (Config, error) {
	cfg := DefaultConfig()
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, explained(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("there is more than one document")
	}
	return cfg, nil
}
