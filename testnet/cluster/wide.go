package cluster

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// wideRegions are the regions of a wide cluster, in the order of their numbers; the first three are the compose file's.
var wideRegions = []string{"us-east", "eu-west", "ap-south", "us-west", "sa-east", "eu-north", "af-south", "me-central",
	"ap-east", "ap-north"}

// The region whose services and network are the pattern of all that the compose file does not have, and its number.
const (
	patternRegion = "eu-west"
	patternNumber = 2
)

// wideCompose returns the compose file with seven more regions, each like the pattern, with addresses and ports of
// their own.
func wideCompose(text string) (string, error) {
	network := regexp.MustCompile(`(?m)^  ` + patternRegion + `:\n    ipam.*\n`).FindString(text)
	install := regexp.MustCompile(`(?m)^    command: \[install-key, `)
	if network == "" || !install.MatchString(text) {
		return "", fmt.Errorf("the compose file has no network %s, or no install-key", patternRegion)
	}
	services := ""
	for _, service := range []string{"-1", "-2", "-redis"} {
		// A service ends before the next line that is indented as much as its name.
		block := regexp.MustCompile(`(?m)^  ` + patternRegion + service + `:\n(?:(?:    .*)?\n)+`).FindString(text)
		if block == "" {
			return "", fmt.Errorf("the compose file has no service %s%s", patternRegion, service)
		}
		services += block
	}
	var names, blocks, networks strings.Builder
	for i := 3; i < len(wideRegions); i++ {
		fmt.Fprintf(&names, "%s-1, %[1]s-2, ", wideRegions[i])
		blocks.WriteString(likePattern(services, wideRegions[i], i+1))
		networks.WriteString(likePattern(network, wideRegions[i], i+1))
	}
	text = install.ReplaceAllString(text, "${0}"+names.String())
	// Each check is a process beside the node's own: of so many every 5 s, nothing would be left for the nodes.
	text = strings.ReplaceAll(text, "      interval: 5s\n", "      interval: 20s\n")
	// And at 100 ms, so many nodes take two processors before anybody asks them.
	text = strings.Replace(text, "  EDGELIMIT_LINGER: 1s\n", "  EDGELIMIT_LINGER: 1s\n  EDGELIMIT_INTERVAL: 500ms\n", 1)
	text = strings.Replace(text, "\nvolumes:\n", "\n"+blocks.String()+"\nvolumes:\n", 1)
	return strings.Replace(text, network, network+networks.String(), 1), nil
}

// likePattern returns the pattern's text with another region's name, number, addresses and ports.
func likePattern(text, region string, number int) string {
	upper := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	pairs := []string{patternRegion, region, upper(patternRegion), upper(region),
		fmt.Sprintf("}.%d.", patternNumber), fmt.Sprintf("}.%d.", number)}
	for node := 1; node <= 2; node++ {
		from, to := 10*patternNumber+node, 10*number+node
		pairs = append(pairs, fmt.Sprintf(":-%d}", from), fmt.Sprintf(":-%d}", to))
		for _, base := range []int{8100, 9100} {
			pairs = append(pairs, fmt.Sprintf(":%d:", base+from), fmt.Sprintf(":%d:", base+to))
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// wideText returns the text of the compose file of a cluster that is wide.
func (c *Cluster) wideText() (string, error) {
	text, err := os.ReadFile(composePath(c.root))
	if err != nil {
		return "", err
	}
	return wideCompose(string(text))
}
