package statsd

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/cactus/go-statsd-client/v5/statsd"
)

// Mogrifier gives statistics whose name matches a pattern another name, and tags, as DOG_STATSD_MOGRIFIER_* does. In
// the name and in the values of tags, $0 stands for the whole match and $1 and so on for the groups of the pattern.
type Mogrifier struct {
	// Pattern is a regular expression; the first mogrifier whose pattern is somewhere in a name is used.
	Pattern string `yaml:"pattern"`
	// Name replaces the name.
	Name string `yaml:"name"`
	// Tags are sent beside those of all statistics.
	Tags map[string]string `yaml:"tags"`
}

func (m *Mogrifier) validate() error {
	if _, err := regexp.Compile(m.Pattern); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if m.Pattern == "" || m.Name == "" {
		return errors.New("give a pattern and a name")
	}
	for name, value := range m.Tags {
		if name == "" || value == "" {
			return errors.New("tags: one has no name or no value")
		}
	}
	return nil
}

// mogrify returns the name and the tags by which a statistic is sent.
func (e *Exporter) mogrify(name string) (string, []statsd.Tag) {
	for i, pattern := range e.patterns {
		groups := pattern.FindStringSubmatch(name)
		if groups == nil {
			continue
		}
		m, tags := &e.cfg.Mogrifiers[i], slices.Clip(e.tags)
		for _, tag := range slices.Sorted(maps.Keys(m.Tags)) {
			tags = append(tags, statsd.Tag{tag, expand(m.Tags[tag], groups)})
		}
		return expand(m.Name, groups), tags
	}
	return name + e.suffix, e.tags
}

var group = regexp.MustCompile(`\$\d+`)

// expand replaces the groups that a text names. Those that the pattern lacks stay as they are written.
func expand(text string, groups []string) string {
	return group.ReplaceAllStringFunc(text, func(name string) string {
		if i, err := strconv.Atoi(name[1:]); err == nil && i < len(groups) {
			return groups[i]
		}
		return name
	})
}
