// Package scrape reads the metrics of a node, as Prometheus does, and its readiness.
package scrape

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are those of a node by name. The zero value has none.
type Metrics map[string]*dto.MetricFamily

// Series is the value of a counter or gauge for some labels.
type Series struct {
	Labels map[string]string
	Value  float64
}

// Get reads the metrics at a URL.
func Get(ctx context.Context, client *http.Client, url string) (Metrics, error) {
	resp, err := get(ctx, client, url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return Parse(resp.Body)
}

// NotReady returns why the node with the health API at a URL is not ready; empty: it is.
func NotReady(ctx context.Context, client *http.Client, url string) (why string, err error) {
	resp, err := get(ctx, client, url+"/readyz")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || resp.StatusCode == http.StatusOK {
		return "", err
	}
	return cmp.Or(strings.TrimSpace(string(text)), resp.Status), nil
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// Parse reads metrics in Prometheus' text format.
func Parse(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return families, nil
}

// Series returns those of a metric.
func (m Metrics) Series(name string) (all []Series) {
	for _, s := range m[name].GetMetric() {
		labels := make(map[string]string)
		for _, l := range s.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		// One of the three is set.
		all = append(all, Series{labels,
			s.GetGauge().GetValue() + s.GetCounter().GetValue() + s.GetUntyped().GetValue()})
	}
	return all
}

// Sum returns the sum of a metric's series, 0 without any.
func (m Metrics) Sum(name string) (total float64) {
	for _, s := range m.Series(name) {
		total += s.Value
	}
	return total
}
