// Package scrape reads the metrics of a node, as Prometheus does.
package scrape

import (
	"context"
	"fmt"
	"io"
	"net/http"

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return Parse(resp.Body)
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
