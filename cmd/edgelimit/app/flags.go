package app

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

// group is a category of flags in the help of a command.
type group string

// plain is the group of flags without a category.
const plain group = ""

// flag returns a flag of the group that sets *to, whose value is the default. A list or a size it does not set: read it
// from the context. A variable NAME lets EDGELIMIT_NAME stand for the flag, and OTEL_NAME that of OpenTelemetry.
func (g group) flag(name, usage string, to any, variables ...string) cli.Flag {
	heading, env := string(g), []string(nil)
	for _, v := range variables {
		if !strings.HasPrefix(v, "OTEL_") {
			v = "EDGELIMIT_" + v
		}
		env = append(env, v)
	}
	switch to := to.(type) {
	case *bool:
		return &cli.BoolFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *int:
		return &cli.IntFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *uint64:
		return &cli.Uint64Flag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *float64:
		return &cli.Float64Flag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *time.Duration:
		return &cli.DurationFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *string:
		return &cli.StringFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: *to, Destination: to}
	case *node.Size:
		return &cli.StringFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: to.String()}
	case *[]string:
		return &cli.StringSliceFlag{Name: name, Usage: usage, Category: heading, EnvVars: env}
	case *map[string]node.Redis:
		return &cli.GenericFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: new(repeated)}
	case *repeated:
		return &cli.GenericFlag{Name: name, Usage: usage, Category: heading, EnvVars: env, Value: to}
	}
	panic(fmt.Sprintf("no flag sets a %T", to))
}

// repeated is a repeatable flag whose values may hold commas.
type repeated []string

func (r *repeated) Set(value string) error {
	*r = append(*r, value)
	return nil
}

func (r *repeated) String() string { return strings.Join(*r, " ") }

// setting is a flag that goes over a setting of a node's configuration.
type setting struct {
	group
	name, usage string
	to          any
}

// override sets those settings whose flags or variables are set.
func override(c *cli.Context, settings []setting) (err error) {
	for _, s := range settings {
		if !c.IsSet(s.name) {
			continue
		}
		switch to := s.to.(type) {
		case *bool:
			*to = c.Bool(s.name)
		case *int:
			*to = c.Int(s.name)
		case *time.Duration:
			*to = c.Duration(s.name)
		case *string:
			*to = c.String(s.name)
		case *float64:
			*to = c.Float64(s.name)
		case *[]string:
			*to = c.StringSlice(s.name)
		case *node.Size:
			size := c.String(s.name)
			if size == "" { // as compose files leave a variable
				continue
			}
			if *to, err = node.ParseSize(size); err != nil {
				return wrongValue(c.Command, s.name, size)
			}
		case *map[string]node.Redis:
			all := make(map[string]node.Redis) // not the default's map
			maps.Copy(all, *to)
			*to = all
			for _, pair := range strings.Fields(c.Generic(s.name).(*repeated).String()) {
				region, url, ok := strings.Cut(pair, "=")
				if !ok || region == "" {
					return misuse(c.Command, "--%s wants REGION=URL, as in us-east=redis://host:6379", s.name)
				}
				all[region] = node.Redis{URL: url}
			}
		}
	}
	return nil
}
