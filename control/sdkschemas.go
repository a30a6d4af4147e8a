package main

import (
	"github.com/danielgtaylor/huma/v2"
)

// Names of the schemas of the SDK.
const (
	schemaSessionReport  = "SessionReport"
	schemaSession        = "Session"
	schemaIdentityReport = "IdentityReport"
	schemaDeviceReport   = "DeviceReport"
	schemaIdentity       = "Identity"
	schemaBatch          = "EventBatch"
	schemaEvent          = "Event"
	schemaReceipt        = "EventReceipt"
)

// sdkSchemas are the bodies of the SDK's surface (decisions.md 7).
func sdkSchemas() map[string]*huma.Schema {
	return map[string]*huma.Schema{
		schemaSessionReport: lenient(sessionFields(), "deviceId"),
		schemaSession: complete(map[string]*huma.Schema{
			"sessionId":      identifier(""),
			"deviceId":       device(),
			"userId":         optional(bounded(1, maxUserID, "Who uses the device, once identified.")),
			"isFirstSession": {Type: huma.TypeBoolean, Description: "Whether it is the first session of the device. It stays so as long as the session lasts."},
			"startedAt":      instant(""),
			"expiresAt":      instant("When the session ends unless the device is heard of before."),
			"link":           {OneOf: []*huma.Schema{reference(schemaPublicLink), {Type: typeNull}}},
		}),
		schemaIdentityReport: lenient(map[string]*huma.Schema{
			"deviceId": device(),
			"userId":   bounded(1, maxUserID, "Id of the user in the app."),
			"traits":   optional(anyObject("What is known of the user. Replaces what was sent before; when omitted that stays.")),
		}, "deviceId", "userId"),
		schemaDeviceReport: lenient(map[string]*huma.Schema{"deviceId": device()}, "deviceId"),
		schemaIdentity: complete(map[string]*huma.Schema{
			"deviceId": device(),
			"userId":   optional(bounded(1, maxUserID, "")),
		}),
		schemaBatch: lenient(map[string]*huma.Schema{
			"deviceId":  device(),
			"sessionId": optional(identifier("The session in which it happened.")),
			// An entry that does not fit is rejected alone.
			"events": {Type: huma.TypeArray, MinItems: new(1), MaxItems: new(maxEvents), Items: reference(schemaEvent)},
		}, "deviceId", "events"),
		schemaEvent: lenient(map[string]*huma.Schema{
			"id":         optional(identifier("Made by the app, so that what is sent twice is stored once.")),
			"name":       {Type: huma.TypeString, Pattern: eventNamePattern, MinLength: new(1), MaxLength: new(64)},
			"timestamp":  optional(instant("When it happened, by the clock of the device. When omitted: when it arrives.")),
			"linkId":     optional(identifier("The link that led to it. It need not exist.")),
			"revenue":    optional(revenue()),
			"currency":   optional(&huma.Schema{Type: huma.TypeString, Pattern: currencyPattern, Description: "ISO 4217. Stored in capitals."}),
			"properties": optional(anyObject("")),
		}, "name"),
		schemaReceipt: complete(map[string]*huma.Schema{
			"accepted":   count("Events that are stored now and were not before."),
			"duplicates": count("Events whose id was stored before, or stands earlier in the batch."),
			"rejected": {Type: huma.TypeArray, Description: "Events that are not stored. There is no use in sending them again.",
				Items: complete(map[string]*huma.Schema{"index": count("Place in the batch, from 0."), "message": text("Cause, for a person.")})},
		}),
	}
}

func sessionFields() map[string]*huma.Schema {
	fields := map[string]*huma.Schema{
		"deviceId":  device(),
		"openedUrl": optional(bounded(0, maxOpenedURL, "The URL that opened the app.")),
	}
	for _, name := range []string{"platform", "osVersion", "appVersion", "sdkVersion", "model", "locale", "timezone"} {
		fields[name] = optional(bounded(0, maxDeviceField, ""))
	}
	return fields
}

func device() *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Pattern: deviceIDPattern, MinLength: new(1), MaxLength: new(128),
		Description: "Made by the app, the same as long as it is installed.",
	}
}

func revenue() *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeNumber, ExclusiveMinimum: new(-maxRevenue), ExclusiveMaximum: new(maxRevenue),
		Description: "Rounded to 6 decimals. Negative for what is paid back.",
	}
}

func anyObject(description string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: description + " At most 8 KiB as sent, at most 8 levels deep."}
}

// lenient is an object whose unknown properties are ignored.
func lenient(properties map[string]*huma.Schema, required ...string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Properties: properties, Required: required, Description: unknownIsPassed}
}
