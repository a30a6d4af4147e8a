package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// values returns a metric by its label, or under "" when it has none.
func (v *Verifier) values(t testing.TB, metric string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(v.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			label := ""
			for _, pair := range m.GetLabel() {
				label = pair.GetValue()
			}
			values[label] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if len(values) == 0 {
		t.Fatalf("there is no metric %s", metric)
	}
	return values
}

const (
	fetchesMetric  = "deeplink_control_session_key_fetches_total"
	refusalsMetric = "deeplink_control_session_refusals_total"
	keysMetric     = "deeplink_control_session_keys"
	ageMetric      = "deeplink_control_session_keys_age_seconds"
)

func TestRefusalsAreCountedByReason(t *testing.T) {
	t.Parallel()
	_, url := newServer(t, setOf(rsaKey(), ecdsaKey(), ed25519Key()))
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, succeeded)
	expected := make(map[string]float64)
	for _, r := range refusals {
		expected[string(r)] = 0
	}
	for _, test := range verdicts() {
		v.Verify(t.Context(), test.token, noon)
		if test.refused != "" {
			expected[string(test.refused)]++
		}
	}
	if diff := cmp.Diff(expected, v.values(t, refusalsMetric)); diff != "" {
		t.Errorf("refusals by reason (-expected +got):\n%s", diff)
	}
	if keys := v.values(t, keysMetric)[""]; keys != 3 {
		t.Errorf("%v keys, expected 3", keys)
	}
}
