package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestMatchBodyGetsItsStatusAndDetails(t *testing.T) {
	t.Parallel()
	e := startMatching(t)
	letters := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		body   string
		header string // instead of a Content-Type
		status int
		fields string // of the details
	}{
		{`{"clipboardToken":"x"}`, "", 200, ""},
		{`{"clipboardToken":"` + letters(100) + `"}`, "", 200, ""},
		{`{"clipboardToken":"` + strings.Repeat("ü", 100) + `"}`, "", 200, ""},
		{`{"clipboardToken":"` + letters(101) + `"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":"` + strings.Repeat("ü", 101) + `"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":""}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":"","installReferrer":"x"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":null}`, "", 400, "clipboardToken"},
		{`{}`, "", 400, "clipboardToken"},
		{`{"ClipboardToken":"x"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":1}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":["x"]}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":null,"installReferrer":"x"}`, "", 200, ""},
		{`{"installReferrer":"` + letters(2048) + `"}`, "", 200, ""},
		{`{"installReferrer":"` + letters(2049) + `"}`, "", 400, "installReferrer"},
		{`{"installReferrer":{}}`, "", 400, "installReferrer"},
		{`{"clipboardToken":"x","deviceId":"` + letters(128) + `","platform":"android","appVersion":"` + letters(64) + `"}`, "", 200, ""},
		{`{"clipboardToken":"x","deviceId":null,"platform":null,"appVersion":null}`, "", 200, ""},
		{`{"clipboardToken":"x","deviceId":""}`, "", 200, ""},
		{`{"clipboardToken":"x","deviceId":"` + letters(129) + `"}`, "", 400, "deviceId"},
		{`{"clipboardToken":"x","deviceId":7}`, "", 400, "deviceId"},
		{`{"clipboardToken":"x","platform":"iOS"}`, "", 400, "platform"},
		{`{"clipboardToken":"x","platform":"windows"}`, "", 400, "platform"},
		{`{"clipboardToken":"x","platform":""}`, "", 400, "platform"},
		{`{"clipboardToken":"x","platform":true}`, "", 400, "platform"},
		{`{"clipboardToken":"x","appVersion":"` + letters(65) + `"}`, "", 400, "appVersion"},
		{`{"clipboardToken":"` + letters(101) + `","deviceId":1,"platform":"x","appVersion":1}`, "", 400, "clipboardToken deviceId platform appVersion"},
		{`{"clipboardToken":"x","unknown":[[[[[[["deep"]]]]]]]}`, "", 200, ""},
		{`{"clipboardToken":"x","unknown":[[[[[[[["deeper"]]]]]]]]}`, "", 400, "unknown[0][0][0][0][0][0][0]"},
		{`{"clipboardToken":"x","clipboardToken":"y"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":"a\u0000b"}`, "", 400, "clipboardToken"},
		{`{"clipboardToken":"a\ud800b"}`, "", 400, "clipboardToken"},
		{"{\"clipboardToken\":\"a\xffb\"}", "", 400, "clipboardToken"},
		{`{"clipboardToken":"x"} {}`, "", 400, "body"},
		{`{"clipboardToken":"x"`, "", 400, "clipboardToken"},
		{`clipboardToken`, "", 400, "body"},
		{`[{"clipboardToken":"x"}]`, "", 400, "body"},
		{`null`, "", 400, "body"},
		{`"x"`, "", 400, "body"},
		{``, "", 400, "body"},
		{``, "X: y", 400, "body"},
		{`{"clipboardToken":"x"}`, "Content-Type: application/json; charset=utf-8", 200, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: Application/JSON", 200, ""},
		{`{"clipboardToken":"x"}`, "X: y", 415, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: text/plain", 415, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: application/jsonx", 415, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: application/json, application/json", 415, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: multipart/form-data; boundary=x", 415, ""},
		{`clipboardToken=x`, "Content-Type: application/x-www-form-urlencoded", 415, ""},
		{`{"clipboardToken":"x"}`, "Content-Type: application/json\r\nContent-Encoding: gzip", 415, ""},
		{`{"clipboardToken":"x","more":"` + letters(16<<10-32) + `"}`, "", 200, ""},
		{`{"clipboardToken":"x","more":"` + letters(16<<10-31) + `"}`, "", 413, ""},
	} {
		name := fmt.Sprintf("%s %.120s", test.header, test.body)
		header := []string{fmt.Sprintf("Content-Length: %d", len(test.body)), from(fmt.Sprintf("10.0.%d.%d", posts.Add(1)>>8, posts.Load()&255)), "Content-Type: application/json"}
		if test.header != "" {
			header[2] = test.header
		}
		a := e.send(t, request("POST", "/match", header...)+test.body)
		if a.status != test.status {
			t.Errorf("%s: %d %s, expected %d", name, a.status, a.body, test.status)
			continue
		}
		checkHeaders(t, a)
		if test.status == 200 {
			checkNothing(t, name, a)
			continue
		}
		checkEnvelope(t, a, "/match")
		e := a.envelope(t)
		var fields []string
		details, _ := e["details"].([]any)
		for _, d := range details {
			detail := d.(map[string]any)
			fields = append(fields, detail["field"].(string))
			if message, _ := detail["message"].(string); !strings.HasPrefix(message, detail["field"].(string)+" ") {
				t.Errorf("%s: message %q of field %s", name, message, detail["field"])
			}
		}
		if got := strings.Join(fields, " "); got != test.fields || (test.status == 400) != (e["message"] == "Validation failed") {
			t.Errorf("%s: %s with fields %q, expected %q", name, a.body, got, test.fields)
		}
	}
}
