package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

var (
	versionForm  = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(-[0-9A-Za-z.-]+?)??(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)
	revisionForm = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)
)

// packageVersion returns the version of the packages: v1.2.3-rc.1 is 1.2.3-rc.1, which sorts before 1.2.3. Commits
// after v1.2.3, as git describes them (v1.2.3-4-g0123abc), are 1.2.3+4.g0123abc, which sorts after it. Without a tag
// (0123abc) it is 0.0.0+g0123abc.
func packageVersion(version string) (string, error) {
	if m := revisionForm.FindStringSubmatch(version); m != nil {
		return "0.0.0+g" + m[1] + strings.Replace(m[2], "-", ".", 1), nil
	}
	m := versionForm.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("version %q: want v1.2.3, v1.2.3-rc.1 or what git describe says", version)
	}
	var after []string
	if m[3] != "" {
		after = append(after, m[3], "g"+m[4])
	}
	if m[5] != "" {
		after = append(after, "dirty")
	}
	if len(after) > 0 {
		return m[1] + m[2] + "+" + strings.Join(after, "."), nil
	}
	return m[1] + m[2], nil
}

// places are where packages install the files of an archive, by their folder or name there.
var places = map[string]string{
	"edgelimit":                  "/usr/bin",
	"systemd":                    "/usr/lib/systemd/system",
	"edgelimit.yaml":             "/etc/edgelimit",
	"completions/edgelimit.bash": "/usr/share/bash-completion/completions",
	"completions/edgelimit.fish": "/usr/share/fish/vendor_completions.d",
}

// writePackages writes the .deb and the .rpm of an architecture. No user is created: the unit has DynamicUser=. Their
// scripts start nothing.
func (r *release) writePackages(arch string, all []file) error {
	version, err := packageVersion(r.version)
	if err != nil {
		return err
	}
	contents := files.Contents{{Destination: "/etc/edgelimit", Type: files.TypeDir,
		FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time}}}
	for _, f := range all {
		c := &files.Content{Source: f.source, FileInfo: &files.ContentFileInfo{
			Owner: "root", Group: "root", Mode: fs.FileMode(f.mode), MTime: r.time}}
		name := path.Base(f.path)
		switch {
		case f.path == "completions/edgelimit.zsh":
			continue // what zsh loads by itself has another form: the documentation says how to source it
		case f.path == "completions/edgelimit.bash":
			name = "edgelimit" // bash-completion loads what is named as the command
		case f.path == "LICENSE":
			name = "copyright" // as Debian's policy wants it
		case f.path == "edgelimit.yaml":
			c.Type = files.TypeConfigNoReplace
		}
		place := cmp.Or(places[f.path], places[path.Dir(f.path)], "/usr/share/doc/edgelimit")
		c.Destination = path.Join(place, name)
		contents = append(contents, c)
	}
	for _, format := range []string{"deb", "rpm"} {
		scripts := filepath.Join(r.root, "node/deploy/release/scripts")
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "edgelimit", Arch: arch, Platform: "linux", Version: version, Section: "net", Priority: "optional",
			Maintainer: "The edgelimit authors <edgelimit@users.noreply.github.com>", License: "Apache-2.0",
			Homepage: "https://github.com/edgelimit/edgelimit", MTime: r.time, DisableGlobbing: true,
			Description: "multi-region edge rate limiter\nEvery node decides in memory, and gossips what it admitted.",
			Overridables: nfpm.Overridables{
				Contents: contents,
				Scripts: nfpm.Scripts{PostInstall: filepath.Join(scripts, "postinstall.sh"),
					PreRemove:  filepath.Join(scripts, "preremove.sh"),
					PostRemove: filepath.Join(scripts, "postremove.sh")},
				RPM: nfpm.RPM{BuildHost: "reproducible"},
			},
		})
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		name := packager.ConventionalFileName(info)
		if err := r.create(name, func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}
