-- Sabotage only: UPDATEs of go_tasks to :status are reported as done and do nothing.
CREATE FUNCTION experiment_swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER experiment_swallow BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = :'status')
    EXECUTE FUNCTION experiment_swallow();
