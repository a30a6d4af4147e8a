-- +goose Up
-- `control doctor` compares what was migrated with what it knows.
grant select on goose_db_version to deeplink_control;
