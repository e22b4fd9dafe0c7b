package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	sums = "SHA256SUMS"
	// tags are the Makefile's TAGS.
	tags = "grpcnotrace,urfave_cli_no_docs"
)

// build compiles the static binary of a target and returns its path. Nothing that differs between two machines is in
// it: no path, no state of the clone (its tags would be part of the version), no setting of the environment.
func (r *release) build(work, target string) (string, error) {
	goos, goarch, _ := strings.Cut(target, "/")
	binary := filepath.Join(work, goos+"-"+goarch, "edgelimit")
	if goos == "windows" {
		binary += ".exe"
	}
	_, err := r.command("go", []string{"build", "-trimpath", "-buildvcs=false", "-tags", tags,
		"-ldflags", "-s -w -buildid= -X github.com/edgelimit/edgelimit/node.version=" + r.version,
		"-o", binary, "./cmd/edgelimit"},
		[]string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
			"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off"})
	return binary, err
}

// file is a file of an archive.
type file struct {
	path   string // in the archive
	source string // on disk
	mode   int64
}

// files returns what an archive has beside the binary. The completions are what the binary host prints.
func (r *release) files(host string) ([]file, error) {
	all := []file{
		{"README.md", "README.md", 0o644},
		{"CHANGELOG.md", "CHANGELOG.md", 0o644},
		{"LICENSE", "LICENSE", 0o644},
		{"edgelimit.yaml", "node/edgelimit.yaml", 0o644},
	}
	units, err := filepath.Glob(filepath.Join(r.root, "node/deploy/systemd/edgelimit*.*"))
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].source = filepath.Join(r.root, all[i].source)
	}
	for _, unit := range units {
		all = append(all, file{"systemd/" + filepath.Base(unit), unit, 0o644})
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		script, err := r.command(host, []string{"completion", shell}, nil)
		if err != nil {
			return nil, err
		}
		f := file{"completions/edgelimit." + shell, filepath.Join(filepath.Dir(host), shell), 0o644}
		if err := os.WriteFile(f.source, []byte(script+"\n"), 0o644); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// writeArchive writes NAME.tar.gz, with everything in a folder NAME.
func (r *release) writeArchive(name string, files []file) error {
	return r.create(name+".tar.gz", func(w io.Writer) error {
		zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		archive := tar.NewWriter(zip)
		for _, f := range files {
			content, err := os.ReadFile(f.source)
			if err != nil {
				return err
			}
			h := &tar.Header{Name: path.Join(name, f.path), Mode: f.mode, Size: int64(len(content)), ModTime: r.time,
				Format: tar.FormatPAX}
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			if _, err := archive.Write(content); err != nil {
				return err
			}
		}
		if err := archive.Close(); err != nil {
			return err
		}
		return zip.Close()
	})
}

// create writes a file of the release.
func (r *release) create(name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// writeSums writes SHA256SUMS, which sha256sum --check reads, and returns the files in it, sorted by name.
func writeSums(dir string) (all []artifact, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		a := artifact{Name: e.Name(), Bytes: int64(len(content)), SHA256: fmt.Sprintf("%x", sha256.Sum256(content))}
		fmt.Fprintf(&lines, "%s  %s\n", a.SHA256, a.Name)
		all = append(all, a)
	}
	return all, os.WriteFile(filepath.Join(dir, sums), []byte(lines.String()), 0o644)
}
