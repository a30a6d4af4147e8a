package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// sdkBounds are values at and beyond each bound: the member in addition to deviceId, its routes, and whether it is valid.
var sdkBounds = func() (all []struct {
	path, body, field string
	good              bool
}) {
	add := func(path, member, field string, good bool) {
		body := `{"deviceId":"phone",` + member + `}`
		if strings.HasPrefix(member, `"deviceId"`) {
			body = `{` + member + `}`
		}
		all = append(all, struct {
			path, body, field string
			good              bool
		}{path, body, field, good})
	}
	rest := map[string]string{"/sdk/session": "", "/sdk/identity": `,"userId":"ann"`, "/sdk/identity/clear": "", "/sdk/events": `,"events":[{"name":"open"}]`}
	for path, rest := range rest {
		for value, good := range map[string]bool{
			`"a"`: true, `"A9._:-"`: true, `"` + repeat("a", 128) + `"`: true,
			`""`: false, `"` + repeat("a", 129) + `"`: false, `"a b"`: false, `"a/b"`: false, `"é"`: false, `"a\n"`: false, `1`: false, `null`: false, `{}`: false,
		} {
			add(path, `"deviceId":`+value+rest, "deviceId", good)
		}
		add(path, `"unknown":{"a":[1]}`+rest, "", true)
	}
	for _, name := range []string{"platform", "osVersion", "appVersion", "sdkVersion", "model", "locale", "timezone"} {
		add("/sdk/session", fmt.Sprintf(`%q:%q`, name, repeat("é", 64)), name, true)
		add("/sdk/session", fmt.Sprintf(`%q:""`, name), name, true)
		add("/sdk/session", fmt.Sprintf(`%q:null`, name), name, true)
		add("/sdk/session", fmt.Sprintf(`%q:%q`, name, repeat("é", 65)), name, false)
		add("/sdk/session", fmt.Sprintf(`%q:1`, name), name, false)
		add("/sdk/session", fmt.Sprintf(`%q:"\u0000"`, name), name, false)
	}
	add("/sdk/session", `"openedUrl":"`+repeat("a", 2048)+`"`, "openedUrl", true)
	add("/sdk/session", `"openedUrl":"`+repeat("a", 2049)+`"`, "openedUrl", false)
	add("/sdk/session", `"openedUrl":1`, "openedUrl", false)
	user := func(member, field string, good bool) { add("/sdk/identity", member, field, good) }
	user(`"userId":"`+repeat("é", 255)+`"`, "userId", true)
	user(`"userId":"`+repeat("é", 256)+`"`, "userId", false)
	user(`"userId":""`, "userId", false)
	user(`"userId":null`, "userId", false)
	user(`"userId":7`, "userId", false)
	user(`"traits":{}`, "userId", false)
	for value, good := range objectBounds() {
		user(`"userId":"ann","traits":`+value, "traits", good)
	}
	batch := func(member, field string, good bool) { add("/sdk/events", member, field, good) }
	one := `{"name":"open"}`
	batch(`"sessionId":null,"events":[`+one+`]`, "", true)
	batch(`"sessionId":"`+strings.ToUpper(nowhere)+`","events":[`+one+`]`, "", true)
	batch(`"sessionId":"x","events":[`+one+`]`, "sessionId", false)
	batch(`"events":[]`, "events", false)
	batch(`"events":null`, "events", false)
	batch(`"events":{}`, "events", false)
	batch(`"x":1`, "events", false)
	batch(`"events":[`+repeat(one+",", 99)+one+`]`, "events", true)
	batch(`"events":[`+repeat(one+",", 100)+one+`]`, "events", false)
	for event, good := range eventBounds() {
		batch(`"events":[`+event+`]`, "events[0]", good)
	}
	return all
}()

func objectBounds() map[string]bool {
	return map[string]bool{
		`{}`: true, `null`: true, `{"a":"` + repeat("a", 8<<10-8) + `"}`: true, repeat(`{"a":`, 7) + `{}` + repeat(`}`, 7): true,
		`{"a":"` + repeat("a", 8<<10-7) + `"}`: false, repeat(`{"a":`, 8) + `{}` + repeat(`}`, 8): false,
		`[]`: false, `"x"`: false, `1`: false, `{"a":"\u0000"}`: false, `{"a":1,"a":2}`: false, `{"a":"\ud800"}`: false, `{"a":1e999}`: false,
	}
}

func eventBounds() map[string]bool {
	all := map[string]bool{`null`: false, `1`: false, `[]`: false, `{}`: false, `{"name":null}`: false, `{"name":1}`: false, `{"name":"open","x":[{}]}`: true}
	with := func(member string, good bool) { all[`{"name":"open",`+member+`}`] = good }
	for name, good := range map[string]bool{
		"a": true, "Z": true, "a9_.: -": true, repeat("a", 64): true, "": false, repeat("a", 65): false, "9a": false, "_a": false, " a": false, "a/b": false, "é": false,
	} {
		all[fmt.Sprintf(`{"name":%q}`, name)] = good
	}
	for value, good := range map[string]bool{
		`null`: true, `"` + nowhere + `"`: true, `"` + strings.ToUpper(nowhere) + `"`: true, `"{` + nowhere + `}"`: false, `""`: false, `1`: false,
		`"` + strings.ReplaceAll(nowhere, "-", "") + `"`: false,
	} {
		with(`"id":`+value, good)
		with(`"linkId":`+value, good)
	}
	for value, good := range map[string]bool{
		`null`: true, `"2030-01-01T00:00:00Z"`: true, `"2020-01-01t00:00:00.123456789+02:00"`: true, `"9999-12-31T23:59:59.9999Z"`: true, `"0001-01-01T00:00:00Z"`: true,
		`"0001-01-01T00:00:00+01:00"`: true, `"9999-12-31T23:59:59-23:59"`: true, `"2016-12-31T23:59:60Z"`: true, `"2017-01-01T00:59:60.5+01:00"`: true,
		`"2016-12-31T23:59:61Z"`: false, `"2030-01-01T1:00:00Z"`: false, `"2030-01-01T01:00:00,5Z"`: false, `"2030-01-01"`: false, `"2030-01-01T00:00:00"`: false, `"2030-02-30T00:00:00Z"`: false, `1893456000`: false, `"now"`: false, `""`: false,
	} {
		with(`"timestamp":`+value, good)
	}
	for value, good := range map[string]bool{
		`null`: true, `0`: true, `-0`: true, `-12.5`: true, `999999999999.9998`: true, `-999999999999.999877`: true, `1e11`: true, `1e-300`: true, `999999999999.9999994`: true, `0.` + repeat("0", 200) + `1`: true,
		`1e12`: false, `-1e12`: false, `999999999999.9999999`: false, `"12.50"`: false, `true`: false, `{}`: false,
	} {
		with(`"revenue":`+value, good)
	}
	for value, good := range map[string]bool{`null`: true, `"EUR"`: true, `"usd"`: true, `"EU"`: false, `"EURO"`: false, `"E1R"`: false, `""`: false, `1`: false} {
		with(`"currency":`+value, good)
	}
	for value, good := range objectBounds() {
		with(`"properties":`+value, good)
	}
	return all
}

func TestBoundsOfTheSDKSurface(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	var c *client
	for i, bound := range sdkBounds {
		// A new key for every few requests, so that no limit interferes.
		if i%50 == 0 {
			c = p.client(w.APIKey(organization.ID, apikey.Client))
		}
		r := c.Do("POST", bound.path, bound.body)
		if bound.good && r.Status != http.StatusOK {
			t.Errorf("POST %s %.200s: %s, expected 200", bound.path, bound.body, r)
		}
		if bound.good {
			continue
		}
		if testenv.CheckEnvelope(t, bound.body, r, bound.path); r.Status != http.StatusBadRequest || !strings.HasPrefix(r.Fields(), bound.field) {
			t.Errorf("POST %s %.200s: %s, expected 400 with details of %q", bound.path, bound.body, r, bound.field)
		}
	}
}

func TestSDKBodiesAreStrictJSON(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ClientKey)
	for _, route := range sdkRoutes {
		for _, body := range []string{
			``, `x`, `null`, `[]`, `1`, `{`, route.body + `x`, route.body + route.body, "\xef\xbb\xbf" + route.body, strings.Replace(route.body, `}`, `,}`, 1),
			`{"deviceId":"a",` + route.body[1:], strings.Replace(route.body, "phone", "\xff", 1), strings.Replace(route.body, "{", `{"x":"\u0000",`, 1),
			strings.Replace(route.body, "{", `{"x":`+repeat("[", 20)+repeat("]", 20)+`,`, 1),
		} {
			r := c.patient("POST", route.path, body)
			if testenv.CheckEnvelope(t, body, r, route.path); r.Status != http.StatusBadRequest {
				t.Errorf("POST %s %q: %s, expected 400", route.path, body, r)
			}
		}
	}
}

func TestRevenueKeepsItsDigits(t *testing.T) {
	t.Parallel()
	for sent, expected := range map[string]string{
		`12.50`:                  "12.500000",
		`-0`:                     "0.000000",
		`123456789012.123456`:    "123456789012.123456",
		`123456789012.123456e0`:  "123456789012.123456",
		`1.23456789012123456E11`: "123456789012.123456",
		`-1e-6`:                  "-0.000001",
		`5e-7`:                   "0.000001",
		`999999999999.9999994`:   "999999999999.999999",
	} {
		event, bad := readEvent([]byte(`{"name":"purchase","revenue":` + sent + `}`))
		if bad != nil || *event.Revenue != expected {
			t.Errorf("%s: %v, %v; expected %s", sent, event.Revenue, bad, expected)
		}
	}
}
