package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/bench/result"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// load runs `bench load` and returns its results by scenario and its exit status.
func load(t *testing.T, bench string, arguments ...string) (map[string]result.Round, int) {
	t.Helper()
	arguments = append([]string{"load", "-c", "4", "--warmup", "0s", "-d", "300ms", "--timeout", "30s", "-o", "json", "--yes"}, arguments...)
	command := exec.CommandContext(t.Context(), bench, arguments...)
	var errOut bytes.Buffer
	command.Stderr = &errOut
	out, err := command.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Log(errOut.String())
	var file result.File
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	rounds := map[string]result.Round{}
	for _, s := range file.Series {
		rounds[s.Scenario] = s.Rounds[0]
	}
	return rounds, command.ProcessState.ExitCode()
}

// Runs the program against real processes: each scenario gets its statuses, and no link remains.
func TestEveryScenarioGetsItsStatuses(t *testing.T) {
	testkit.Prove(t)
	bench, err := devservers.Build(t.Context(), "deeplink/bench")
	if err != nil {
		t.Fatal(err)
	}
	f := testfleet.Start(t, 1, 2)
	o, err := fleet.NewOrganization(t.Context(), f.OperatorCommand)
	if err != nil {
		t.Fatal(err)
	}
	where := []string{"--base", "http://" + strings.Join(f.EdgeAddrs(), ",http://"), "--api", "http://" + f.Controls[0].Addr, "--server-key", o.ServerKey, "--clients", "10000"}
	rounds, status := load(t, bench, append(where, "redirect", "zipf", "unknown", "pages", "data", "match", "create", "get", "list", "delete", "mixed",
		"--links", "10", "--tokens", "20", "--unknown", "0.5")...)
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	for scenario, statuses := range map[string][]int{
		"redirect": {302}, "zipf": {302}, "unknown": {302, 404}, "pages": {200}, "data": {200}, "match": {200}, "create": {201}, "get": {200}, "list": {200},
		"delete: completed": {200}, "delete: gone": {404}, "mixed: clicks": {302}, "mixed: edits": {200},
	} {
		round := rounds[scenario]
		for _, status := range statuses {
			if round.Statuses[status] == 0 {
				t.Errorf("%s: no %d in %v", scenario, status, round.Statuses)
			}
		}
		for status := range round.Statuses {
			if !slices.Contains(append(statuses, http.StatusTooManyRequests, http.StatusServiceUnavailable), status) {
				t.Errorf("%s: %v", scenario, round.Statuses)
			}
		}
		if len(round.Failures) > 0 {
			t.Errorf("%s: failures %v", scenario, round.Failures)
		}
	}
	_, text, err := o.Request(t.Context(), f.Controls[0].Addr, http.MethodGet, "/links", nil)
	var remaining struct{ Total int }
	if err := errors.Join(err, json.Unmarshal(text, &remaining)); err != nil || remaining.Total != 0 {
		t.Errorf("%d links remain, %v", remaining.Total, err)
	}

	t.Run("a link served after its delete is detected", func(t *testing.T) {
		late := httptest.NewServer(http.RedirectHandler("https://example.com", http.StatusFound))
		t.Cleanup(late.Close)
		rounds, status := load(t, bench, append(where, "delete", "--base", late.URL)...)
		if rounds["delete: gone"].Failures["served after the delete completed"] == 0 || status != 4 {
			t.Errorf("an edge that serves deleted links: %+v, exit status %d, expected 4", rounds["delete: gone"], status)
		}
	})
}
