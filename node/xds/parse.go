package xds

import (
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// asFile writes a resource as rule files have it: the messages have the names and the nesting of their YAML, of which
// JSON is a part.
var asFile = protojson.MarshalOptions{UseProtoNames: true}

// parse returns the rules of all resources. Each is read as a file with the name of the resource.
func parse(opt rulefile.Options, resources []*anypb.Any) (*rules.Set, error) {
	files := make([]rulefile.File, len(resources))
	for i, resource := range resources {
		var config ratelimit.RateLimitConfig
		if err := resource.UnmarshalTo(&config); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i+1, err)
		}
		files[i].Name = config.Name
		config.Name = "" // it is no part of a file
		var err error
		if files[i].Data, err = asFile.Marshal(&config); err != nil {
			return nil, fmt.Errorf("resource %q: %w", files[i].Name, err)
		}
	}
	return opt.ParseFiles(files...)
}
