package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;

/** One thing that a scenario may ask for. What it returns is written as JSON. */
interface Verb {
    Object play(JsonNode args) throws Exception;
}
