SwaggerUIBundle({
	url: "openapi.json",
	dom_id: "#reader",
	deepLinking: true,
	validatorUrl: null,
});
