-- +goose Up
-- The two least-privileged group roles. Operators grant them to the login roles of control and of the edges; each later migration grants
-- the rights on the tables that it creates. Roles belong to the whole cluster, so another database of the same cluster may have created
-- them already, or may be creating them at the same moment.
-- +goose StatementBegin
do $$
begin
    begin
        create role deeplink_control nologin;
    exception when duplicate_object or unique_violation then null;
    end;
    begin
        create role deeplink_edge nologin;
    exception when duplicate_object or unique_violation then null;
    end;
end
$$;
-- +goose StatementEnd

grant usage on schema public to deeplink_control, deeplink_edge;
