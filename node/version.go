package node

import (
	"cmp"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// modulePath is where the version of this module stands in the build information of programs that embed it.
const modulePath = "github.com/edgelimit/edgelimit"

// version is what the linker is told: -ldflags "-X github.com/edgelimit/edgelimit/node.version=v1.2.3". Empty: what the
// go command knows.
var version string

// Version says what was built.
type Version struct {
	Version string `json:"version"` // of the module: v1.2.3, or what git describe says; (devel) where nobody knows
	// the commit, "-dirty" behind it where files were changed; empty where nobody knows
	Revision string `json:"revision"`
	Go       string `json:"go"`       // of the toolchain: go1.26.1
	Platform string `json:"platform"` // linux/amd64
}

// BuildVersion returns the version of this module in the running program: of a program that embeds it, that of the
// dependency.
var BuildVersion = sync.OnceValue(func() Version {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info, version)
})

// String returns the version on a line.
func (v Version) String() string {
	parts := []string{v.Go, v.Platform}
	if v.Revision != "" {
		parts = append([]string{"commit " + v.Revision}, parts...)
	}
	return v.Version + " (" + strings.Join(parts, ", ") + ")"
}

// pseudoVersion ends with the time and the beginning of the commit that it stands for.
var pseudoVersion = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+dirty)?$`)

// versionOf reads build information, which is nil where there is none. linked goes over the version in it.
func versionOf(info *debug.BuildInfo, linked string) Version {
	info = cmp.Or(info, &debug.BuildInfo{GoVersion: runtime.Version()})
	v := Version{Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	module := &info.Main
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			module = cmp.Or(dep.Replace, dep)
		}
	}
	v.Version = cmp.Or(linked, module.Version, "(devel)")
	for _, s := range info.Settings {
		switch {
		case info.Main.Path != modulePath: // another program's commit
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			v.Revision += "-dirty" // the go command stamps the revision first
		}
	}
	if m := pseudoVersion.FindStringSubmatch(v.Version); m != nil && v.Revision == "" {
		v.Revision = m[1]
	}
	return v
}
