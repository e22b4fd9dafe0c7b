package bans

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Config says where the bans of rules with export: address go.
type Config struct {
	Exports []Export `yaml:"exports"`
}

// Export is one copy of the addresses that are banned.
type Export struct {
	// Format is that of File: nftables, ipset, haproxy, nginx or json.
	Format string `yaml:"format"`
	// File is written, by its absolute path, whenever it would differ: as another file that is renamed, with mode 0640.
	File string `yaml:"file"`
	// Rules are names of rules whose bans it has; empty: of all that export.
	Rules []string `yaml:"rules"`
	// Apply keeps sets of nftables up to date; it needs the right to do so (CAP_NET_ADMIN).
	Apply bool `yaml:"apply"`
	// Table and Set name them: a table of family inet with the sets SET_v4, SET_v6, SET_v4_net and SET_v6_net, or the
	// sets SET_v4 and SET_v6 of ipset, which has no tables. Defaults: edgelimit, and banned, or edgelimit with ipset.
	Table string `yaml:"table"`
	Set   string `yaml:"set"`
	// Command is run after the file was written, at most once in five seconds: a program and its arguments, no shell.
	Command []string `yaml:"command"`
	// NFT is the program nft; empty: as PATH and the usual directories have it.
	NFT string `yaml:"nft"`
}

var (
	formats = []string{"nftables", "ipset", "haproxy", "nginx", "json"}
	// a name of nftables without quotes, and with its suffix no longer than ipset's names may be
	setName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,25}$`)
)

const maxExports = 16

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Exports) > maxExports {
		errs = append(errs, fmt.Errorf("exports: %d, at most %d", len(c.Exports), maxExports))
	}
	seen := make(map[string]int)
	for i := range c.Exports {
		x := &c.Exports[i]
		for _, problem := range x.problems() {
			errs = append(errs, fmt.Errorf("exports[%d]: %s", i, problem))
		}
		targets := []string{x.File}
		if x.Apply {
			targets = append(targets, "set "+x.table()+" "+x.set())
		}
		for _, target := range targets {
			if other, known := seen[target]; known && target != "" {
				errs = append(errs, fmt.Errorf("exports[%d]: %s is already that of exports[%d]", i, target, other))
			}
			seen[target] = i
		}
	}
	return errors.Join(errs...)
}

func (x *Export) problems() (all []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	check(slices.Contains(formats, x.Format), "format: %.32q, want one of %s", x.Format, strings.Join(formats, ", "))
	check(x.File == "" || filepath.IsAbs(x.File) && filepath.Clean(x.File) == x.File,
		"file: %.80q, want an absolute path", x.File)
	check(x.File != "" || x.Apply, "file: an export without a file does nothing, unless nftables has apply: true")
	check(!x.Apply || x.Format == "nftables", "apply is for nftables: use command")
	check(x.Table == "" || x.Format == "nftables", "table is for nftables")
	check(x.NFT == "" || x.Apply, "nft is for apply")
	check(x.Set == "" || x.sets(), "set is for nftables and ipset")
	check(setName.MatchString(x.table()), "table: %.40q, want letters, digits and _, 26 at most", x.Table)
	check(setName.MatchString(x.set()), "set: %.40q, want letters, digits and _, 26 at most", x.Set)
	check(len(x.Command) == 0 || x.Command[0] != "", "command: it names no program")
	check(len(x.Command) == 0 || x.File != "", "command: it runs after the file was written, and there is none")
	return all
}

// sets reports whether the format is one of sets of the kernel, whose elements have timeouts.
func (x *Export) sets() bool { return x.Format == "nftables" || x.Format == "ipset" }

func (x *Export) table() string {
	if x.Table == "" {
		return "edgelimit"
	}
	return x.Table
}

func (x *Export) set() string {
	switch {
	case x.Set != "":
		return x.Set
	case x.Format == "ipset":
		return "edgelimit"
	}
	return "banned"
}

// name is what logs and metrics call the export.
func (x *Export) name() string {
	if x.File == "" {
		return x.Format + ":" + x.table() + "/" + x.set()
	}
	return x.Format + ":" + x.File
}
