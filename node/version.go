package node

import (
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

// versionOf reads build information, which is nil where there is none. linked goes over the version in it.
func versionOf(info *debug.BuildInfo, linked string) Version {
	v := Version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		v.read(info)
	}
	if linked != "" {
		v.Version = linked
	}
	return v
}

// pseudoVersion ends with the time and the beginning of the commit that it stands for.
var pseudoVersion = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+dirty)?$`)

func (v *Version) read(info *debug.BuildInfo) {
	v.Go = info.GoVersion
	module := &info.Main
	if module.Path == modulePath {
		v.Revision = revisionOf(info.Settings)
	} else {
		for _, dep := range info.Deps {
			if dep.Path == modulePath {
				module = dep
				if dep.Replace != nil {
					module = dep.Replace
				}
			}
		}
	}
	if module.Version != "" {
		v.Version = module.Version
	}
	if m := pseudoVersion.FindStringSubmatch(v.Version); m != nil && v.Revision == "" {
		v.Revision = m[1]
	}
}

// revisionOf is the commit that the go command stamped.
func revisionOf(settings []debug.BuildSetting) (revision string) {
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))] + revision
		case s.Key == "vcs.modified" && s.Value == "true":
			revision += "-dirty"
		}
	}
	return revision
}
