package node

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
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

// unknownSetting is what the decoder says of a key that no field has.
var unknownSetting = regexp.MustCompile(`field (\S+) not found in type \S+`)

// explained says of keys that are no settings what to do instead.
func explained(err error) error {
	if list, ok := errors.AsType[*yaml.TypeError](err); ok {
		for i, e := range list.Errors {
			if m := unknownSetting.FindStringSubmatch(e); m != nil {
				instead := cmp.Or(renamed[m[1]], "edgelimit serve --print-config shows those that there are")
				list.Errors[i] = strings.Replace(e, m[0], fmt.Sprintf("unknown setting %q: %s", m[1], instead), 1)
			}
		}
	}
	return err
}

// readPassword reads a file that holds a password, and nothing else but an end of the line.
func readPassword(name string) (string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty: write the password into it", name)
	}
	return password, nil
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
