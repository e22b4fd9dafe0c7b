package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/rulestore"
	"github.com/edgelimit/edgelimit/node/text"
)

const (
	historyHelp = `
edgelimit rules history --redis redis://10.0.0.5

Exit status: 0 listed, 2 not read.`

	pullHelp = `
Without a version: the one in force.

edgelimit rules pull --out rules --redis redis://10.0.0.5

Exit status: 0 done, 2 not read or not written.`
)

// versionOf returns the version that the argument names, 0 without one.
func versionOf(c *cli.Context) (uint64, error) {
	if c.NArg() > 1 {
		return 0, misuse(c.Command, "give one version, got %d arguments", c.NArg())
	} else if c.NArg() == 0 {
		return 0, nil
	}
	version, err := strconv.ParseUint(c.Args().First(), 10, 53)
	if err != nil || version == 0 {
		return 0, misuse(c.Command, "version %.80q: want a number such as 41", c.Args().First())
	}
	return version, nil
}

func rulesHistory(c *cli.Context) error {
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	all, err := s.all[0].History(c.Context, rulestore.Rules)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"versions": append([]rulestore.Version{}, all...)})
	}
	if len(all) == 0 {
		_, err = fmt.Fprintln(c.App.Writer, "no rules have been published yet")
		return err
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tTIME\tAUTHOR\tMESSAGE")
	for _, v := range all {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", v.Version, v.Time.UTC().Format(time.RFC3339), text.Clean(v.Author),
			text.Clean(v.Message))
	}
	return w.Flush()
}

func pullRules(c *cli.Context) error {
	version, err := versionOf(c)
	if err != nil {
		return err
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	var d rulestore.Document
	if version == 0 {
		d, err = s.all[0].Current(c.Context, rulestore.Rules)
	} else {
		d, err = s.all[0].Fetch(c.Context, rulestore.Rules, version)
	}
	if err != nil {
		return err
	} else if d.Version.Version == 0 {
		return errors.New("no rules have been published yet")
	}
	files, err := rulestore.DecodeFiles(d.Text)
	if err != nil {
		return err
	}
	if dir := c.String("out"); dir != "" {
		if err := writeFiles(dir, files); err != nil {
			return err
		}
	}
	return printFiles(c, d, files)
}

// printFiles prints a version: as JSON, the names of files that were written, or the texts.
func printFiles(c *cli.Context, d rulestore.Document, files []rulefile.File) error {
	out := c.App.Writer
	switch {
	case c.Bool("json"):
		texts := make(map[string]string)
		for _, f := range files {
			texts[f.Name] = string(f.Data)
		}
		return printJSON(c, map[string]any{"version": d.Version, "files": texts})
	case c.String("out") != "":
		fmt.Fprintf(out, "wrote %s to %s\n", plural(len(files), "file"), c.String("out"))
		return nil
	}
	if !isTerminal(out) {
		out = raw(out) // byte by byte what was published
	}
	for _, f := range files {
		if len(files) > 1 {
			fmt.Fprintf(out, "# %s\n", f.Name)
		}
		if _, err := out.Write(f.Data); err != nil {
			return err
		}
		if len(f.Data) > 0 && f.Data[len(f.Data)-1] != '\n' {
			fmt.Fprintln(out)
		}
	}
	return nil
}

// writeFiles writes rule files to a directory, which it makes. It replaces none.
func writeFiles(dir string, files []rulefile.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil {
			return fmt.Errorf("%s exists already: give another directory", filepath.Join(dir, f.Name))
		}
	}
	for _, f := range files {
		file, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = file.Write(f.Data)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}
