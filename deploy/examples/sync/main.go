// Command sync brings the links of an organization up to date with a catalogue on its standard input, one product a line. A link whose
// product is gone is deleted. A run can be repeated at any time: what is up to date already stays unchanged.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

type operation struct {
	Op         string         `json:"op"`
	ExternalID string         `json:"externalId"`
	Link       map[string]any `json:"link,omitempty"`
}

func main() {
	products, operations := map[string]bool{}, []operation{}
	for in := json.NewDecoder(os.Stdin); ; {
		var p struct{ ID, Path, Title string }
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fail(err)
		}
		products[p.ID] = true
		operations = append(operations, operation{"upsert", p.ID, map[string]any{"path": p.Path, "title": p.Title}})
	}
	for cursor := new(""); cursor != nil; {
		var page struct {
			Data       []struct{ ExternalID *string }
			NextCursor *string
		}
		call("GET", "/links?limit=100&after="+*cursor, nil, &page)
		for _, link := range page.Data {
			if link.ExternalID != nil && !products[*link.ExternalID] {
				operations = append(operations, operation{Op: "delete", ExternalID: *link.ExternalID})
			}
		}
		cursor = page.NextCursor
	}
	for counts := map[string]int{}; ; operations = operations[min(1000, len(operations)):] {
		if len(operations) == 0 {
			fmt.Println(counts["created"], "created,", counts["updated"], "updated,", counts["deleted"], "deleted,", counts[""], "failed")
			return
		}
		var done struct{ Results []struct{ Result string } }
		call("POST", "/links/bulk", map[string]any{"operations": operations[:min(1000, len(operations))]}, &done)
		for _, r := range done.Results {
			counts[r.Result]++
		}
	}
}

// call sends a request and reads the response into result. DEEPLINK_API and DEEPLINK_KEY are the address of control and a server key.
func call(method, path string, body, result any) {
	sent, err := json.Marshal(body)
	if err != nil {
		fail(err)
	}
	request, err := http.NewRequest(method, os.Getenv("DEEPLINK_API")+path, bytes.NewReader(sent))
	if err != nil {
		fail(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("DEEPLINK_KEY"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fail(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		fail(errors.New(response.Status))
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
