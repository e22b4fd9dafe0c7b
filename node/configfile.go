package node

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

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

func parseConfig(b []byte) (Config, error) {
	cfg := DefaultConfig()
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("there is more than one document")
	}
	return cfg, nil
}
