package main

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// tagSDK is what phones call.
const tagSDK = "SDK"

// securityClient names the security scheme of client keys.
const securityClient = "ClientKey"

func withClientKey() []map[string][]string { return []map[string][]string{{securityClient: {}}} }

func clientScheme() *huma.SecurityScheme {
	return &huma.SecurityScheme{
		Type: "http", Scheme: "bearer", BearerFormat: apikey.Prefix(apikey.Client) + "…",
		Description: "A client key of the organization. It is in every copy of the app, and good for nothing but to report.",
	}
}

// sdkErrors are the statuses of every operation of the SDK.
var sdkErrors = append([]int{408, 413, 415}, keyedErrors...)

const (
	exampleDevice   = "8e6b1f04-77c1-4a53-b2a4-5f0e6d3c2b1a"
	reportsAMinute  = "60 requests a minute and key, for sessions and identities together. "
	unknownIsPassed = "Fields that are not known are ignored."
)

func openSessionOperation() huma.Operation {
	return huma.Operation{
		OperationID: "openSession", Method: http.MethodPost, Path: "/sdk/session", Tags: []string{tagSDK},
		Summary: "Begin a session of a device, or go on with it",
		Description: reportsAMinute + "The same session is answered until the device has been silent for 30 minutes; events of the session are a sign of life too. " +
			"link is what openedUrl leads to, judged as a click on it would be now.",
		Security:    withClientKey(),
		RequestBody: body(schemaSessionReport, exampleReport(), mediaJSON),
		Responses:   responses(sdkErrors).with(http.StatusOK, answered(schemaSession, exampleSession(), "The session.")),
	}
}

func identifyOperation() huma.Operation {
	return huma.Operation{
		OperationID: "identify", Method: http.MethodPost, Path: "/sdk/identity", Tags: []string{tagSDK},
		Summary:     "Tell who uses a device",
		Description: reportsAMinute + "Events that arrive from then on are this user's. The device need not be known.",
		Security:    withClientKey(),
		RequestBody: body(schemaIdentityReport, map[string]any{"deviceId": exampleDevice, "userId": "user-42", "traits": map[string]any{"plan": "pro"}}, mediaJSON),
		Responses: responses(sdkErrors).
			with(http.StatusOK, answered(schemaIdentity, identity{exampleDevice, new("user-42")}, "Who uses it now.")),
	}
}

func clearIdentityOperation() huma.Operation {
	return huma.Operation{
		OperationID: "clearIdentity", Method: http.MethodPost, Path: "/sdk/identity/clear", Tags: []string{tagSDK},
		Summary:     "Tell that nobody known uses a device any more",
		Description: reportsAMinute + "The answer is the same for a device that is not known.",
		Security:    withClientKey(),
		RequestBody: body(schemaDeviceReport, map[string]any{"deviceId": exampleDevice}, mediaJSON),
		Responses:   responses(sdkErrors).with(http.StatusOK, answered(schemaIdentity, identity{DeviceID: exampleDevice}, "Nobody does.")),
	}
}

func recordEventsOperation() huma.Operation {
	return huma.Operation{
		OperationID: "recordEvents", Method: http.MethodPost, Path: "/sdk/events", Tags: []string{tagSDK},
		Summary: "Report what happened in the app",
		Description: "600 requests a minute and key. What is answered 200 is stored for good. Give each event an id and repeat the batch until it is answered: an id is stored once, " +
			"and remembered for 7 days. A bad event is rejected alone; only when none is good the answer is 400. " +
			"A body has 64 KiB and a phone 30 seconds for it: 100 events with properties of 8 KiB do not fit. After 413 or 408 send half of the batch. " +
			"A time more than 5 minutes ahead becomes that of arrival, one of more than 30 days ago 30 days ago.",
		Security:    withClientKey(),
		RequestBody: body(schemaBatch, exampleBatch(), mediaJSON),
		Responses: responses(sdkErrors).with(http.StatusOK, answered(schemaReceipt,
			receipt{Accepted: 1, Rejected: []rejection{{Index: 1, Message: "name is required"}}}, "What became of the events.")),
	}
}

func exampleReport() any {
	return map[string]any{"deviceId": exampleDevice, "platform": "ios", "appVersion": "3.2.1", "openedUrl": exampleLink().URL}
}

func exampleSession() openedSession {
	at := exampleLink().CreatedAt
	link := exampleLink().Public()
	return openedSession{store.Session{
		ID: "0195514c-9a00-7aaa-8d2f-3b6a1c9e4f11", DeviceID: exampleDevice, IsFirst: true, StartedAt: at,
		ExpiresAt: catalog.Time{Time: at.Add(30 * time.Minute)},
	}, &link}
}

func exampleBatch() any {
	return map[string]any{"deviceId": exampleDevice, "sessionId": exampleSession().ID, "events": []any{
		map[string]any{"id": "0195514c-9a00-7bbb-8d2f-3b6a1c9e4f12", "name": "purchase", "timestamp": exampleLink().CreatedAt,
			"linkId": exampleLink().ID, "revenue": 12.5, "currency": "EUR", "properties": map[string]any{"sku": "42"}},
		map[string]any{"id": "0195514c-9a00-7bbb-8d2f-3b6a1c9e4f13", "name": "open"},
	}}
}
